"""Every C type that can be passed, through the real compiler: the value arrives unchanged, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from agentgen import jit

NUMBERS: list[tuple[str, Any, Any]] = [  # C type, the largest value it takes, one that it refuses
    ("bool", True, 2),
    ("char", 127, 128),
    ("signed char", -128, -129),
    ("unsigned char", 255, 256),
    ("uint8_t", 255, -1),
    ("short", 32767, 32768),
    ("unsigned short int", 65535, 65536),
    ("int", 2**31 - 1, 2**31),
    ("const int", -(2**31), -(2**31) - 1),
    ("int32_t", 2**31 - 1, 2.0),
    ("unsigned", 2**32 - 1, -1),
    ("unsigned int", 2**32 - 1, 2**32),
    ("long", 2**63 - 1, 2**63),
    ("long unsigned int", 2**64 - 1, -1),
    ("long long", -(2**63), 2**63),
    ("unsigned long long", 2**64 - 1, 2**64),
    ("int64_t", 2**63 - 1, None),
    ("std::int64_t", 2**63 - 1, "1"),
    ("size_t", 2**64 - 1, -1),
    ("float", 0.5, 1e39),
    ("const float", float("-inf"), "0.5"),
    ("double", 1e300, None),
    ("real", 3, "3"),
    ("count_t", 7, 7.5),
    ("WIDE", 2**63 - 1, 2**63),
]
ECHO = (
    "#include <cstdint>\n#include <cstddef>\n"
    "using real = double; typedef unsigned int narrow; typedef narrow count_t;\n"
    "#define WIDE long long // a macro for one type\n"
) + "\n".join(f'extern "C" {kind} echo{i}({kind} value) {{ return value; }}' for i, (kind, _, _) in enumerate(NUMBERS))


@pytest.fixture(scope="module")
def echo(gpp: None, cache: Path) -> jit.Library:
    return jit.cpp(ECHO, options="-O0")


@pytest.mark.parametrize("index", range(len(NUMBERS)), ids=[kind for kind, _, _ in NUMBERS])
def test_number_reaches_c_unchanged_or_is_refused_by_name(echo: jit.Library, index: int) -> None:
    kind, good, bad = NUMBERS[index]
    function = getattr(echo, f"echo{index}")
    assert function(good) == good
    with pytest.raises(
        TypeError, match=rf"echo{index}, argument 1 `{kind} value`: .*Declared: echo{index}\({kind} value\)"
    ):
        function(bad)


SHIFT = 'extern "C" void shift(const float* x, float* out, int64_t n, float a) { out[0] = x[n] + a; }'


@pytest.mark.usefixtures("gpp")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "out", 3), r"shift takes 4 arguments, got 3: shift\(const float\* x, float\* out, int64_t n, float a\)"),
        (("x", "out", 3.0, 1), r"argument 3 `int64_t n`: got 3.0 \(float\), not an integer"),
        (("x", "out", 3, "x"), "argument 4 `float a`: got a tensor where a number is declared"),
        (("x", [1.0], 3, 1), r"argument 2 `float\* out`: got \[1.0\] \(list\); pass a torch tensor"),
        (("double", "out", 3, 1), r"argument 1 `const float\* x`: got a torch.float64 tensor"),
        (("index", "out", 3, 1), r"argument 1 `const float\* x`: got a torch.int64 tensor"),
        (("elsewhere", "out", 3, 1), "argument 1 .*: got a tensor on meta, needs one on cpu"),
    ],
)
def test_wrong_argument_is_named(arguments: tuple[Any, ...], message: str) -> None:
    tensors = {
        "x": torch.zeros(3),
        "out": torch.zeros(3),
        "double": torch.zeros(3, dtype=torch.float64),
        "index": torch.zeros(3, dtype=torch.int64),
        "elsewhere": torch.zeros(3, device="meta"),
    }
    with pytest.raises(TypeError, match=message):
        jit.cpp(f"#include <cstdint>\n{SHIFT}").shift(*[tensors[a] if isinstance(a, str) else a for a in arguments])


@pytest.mark.usefixtures("gpp")
def test_reinterpreted_bytes_pass_where_no_mistake_is_certain() -> None:
    library = jit.cpp('extern "C" int first(const unsigned* words, const void* bytes) { return words[0] + !bytes; }')
    assert library.first(torch.tensor([1, 1, 0, 0], dtype=torch.int8), torch.zeros(1, dtype=torch.float64)) == 257
