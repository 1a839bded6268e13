"""Parameter lists read from sources that a naive reader would stumble over."""

from __future__ import annotations

import pytest
import torch

from agentgen import jit

pytestmark = pytest.mark.usefixtures("gpp")

NASTY = r"""
#include <cstddef>
#include <cstdint>
// extern "C" void commented(int n) {}
/* extern "C" void commented(int n) {} */
#define DEFINE(name) \
  extern "C" void name(int n) {}
#define UNUSED {
struct Pair { int first, second; };
static const char* text = "extern \"C\" void quoted(int n) { \\"; static const char brace = '{', quote = '\'';
static const char* raw = R"x(extern "C" void quoted(int n) { " )x";
static const int big = 1'000'000, table[] = {1, 2};
template <typename T> T twice(T value) { return value + value; }
namespace inner { int hidden(Pair pair) { return pair.first; } }
extern "C" int64_t spread
    (const float* __restrict__ x, /* first, second */ float *const y,   // a comment, with a comma
     const void * const * table_of_tables, const float z[4], unsigned
     long long int n, size_t) noexcept {
  if (n) { for (;;) { break; } }
  return (x != nullptr) + 2 * (y != nullptr) + 4 * (table_of_tables != nullptr) + 8 * (z != nullptr) + 16 * n;
}
extern "C" __attribute__((noinline, aligned(16))) [[nodiscard]] int marked(std::int32_t n) { return twice(n); }
extern "C" {
  static int kept_private(Pair pair) { return pair.second; }
  namespace nested { int inside(void) { return inner::hidden({5, kept_private({1, 2})}); } }
  struct Local { int field; };
  void declared_only(int n);
}
int after(int n) { return n; }
"""


def test_parameter_lists_survive_comments_attributes_strings_and_scopes() -> None:
    library = jit.cpp(NASTY)
    x = torch.zeros(4)
    assert library.spread(x, None, x.data_ptr(), x, 1, 0) == 1 + 4 + 8 + 16
    assert library.marked(21) == 42
    assert library.inside() == 5
    for name in ("commented", "quoted", "name", "twice", "hidden", "kept_private", "after", "declared_only"):
        with pytest.raises(AttributeError, match=r'there are: spread, marked, inside\. Is it defined extern "C"\?'):
            getattr(library, name)


@pytest.mark.parametrize("parameter", ["Pair p", "const Pair& p", "long double p", "int (*p)(int)", "Box<int, 2> p"])
def test_parameter_that_cannot_be_passed_is_named_when_built(parameter: str) -> None:
    source = "struct Pair { int a; };\ntemplate <class T, int N> struct Box { T a; };\n"
    with pytest.raises(TypeError) as caught:
        jit.cpp(f'{source}extern "C" void take(int n, {parameter}) {{}}', options="-O0")
    assert str(caught.value).startswith(f"take(int n, {parameter}): `{parameter}` cannot be passed")


def test_result_that_cannot_be_passed_is_named_when_built() -> None:
    with pytest.raises(TypeError, match=r"make\(int n\): `Pair result` cannot be passed"):
        jit.cpp('struct Pair { int a; };\nextern "C" Pair make(int n) { return {n}; }', options="-O0")
