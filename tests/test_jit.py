"""agentgen.jit with the real compilers; what needs a GPU is marked `gpu`."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgen import jit

needs_gpp = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")

ADD = r"""
#include <cstdint>
extern "C" void add(const float* x, float* out, int64_t n, float a) {
  #pragma omp parallel for
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + a;
}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of our own, empty when the module's first test starts."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "agentgen" / "jit"


@pytest.fixture(autouse=True)
def _own_cache(cache: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    pass


@pytest.fixture(scope="module")
def nvrtc(cache: Path) -> None:
    """Skips where CUDA source cannot be compiled."""
    try:
        jit.cuda('extern "C" __global__ void probe(int n) {}')
    except RuntimeError as error:
        if "libnvrtc not found" not in str(error):
            raise
        pytest.skip(str(error))


# ---- parameters ------------------------------------------------------------------------------------------------------

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
def echo(cache: Path) -> jit.Library:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on the PATH")
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


@needs_gpp
def test_parameter_lists_survive_comments_attributes_strings_and_scopes() -> None:
    library = jit.cpp(NASTY)
    x = torch.zeros(4)
    assert library.spread(x, None, x.data_ptr(), x, 1, 0) == 1 + 4 + 8 + 16
    assert library.marked(21) == 42
    assert library.inside() == 5
    for name in ("commented", "quoted", "name", "twice", "hidden", "kept_private", "after", "declared_only"):
        with pytest.raises(AttributeError, match=r'there are: spread, marked, inside\. Is it defined extern "C"\?'):
            getattr(library, name)


@needs_gpp
@pytest.mark.parametrize("parameter", ["Pair p", "const Pair& p", "long double p", "int (*p)(int)", "Box<int, 2> p"])
def test_parameter_that_cannot_be_passed_is_named_when_built(parameter: str) -> None:
    source = "struct Pair { int a; };\ntemplate <class T, int N> struct Box { T a; };\n"
    with pytest.raises(TypeError) as caught:
        jit.cpp(f'{source}extern "C" void take(int n, {parameter}) {{}}', options="-O0")
    assert str(caught.value).startswith(f"take(int n, {parameter}): `{parameter}` cannot be passed")


@needs_gpp
def test_result_that_cannot_be_passed_is_named_when_built() -> None:
    with pytest.raises(TypeError, match=r"make\(int n\): `Pair result` cannot be passed"):
        jit.cpp('struct Pair { int a; };\nextern "C" Pair make(int n) { return {n}; }', options="-O0")


# ---- C++ -------------------------------------------------------------------------------------------------------------


@needs_gpp
def test_cpp_adds_and_is_listed_in_builds() -> None:
    x, out = torch.randn(1000), torch.empty(1000)
    library = jit.cpp(ADD)
    assert library.add(x, out, 1000, 0.5) is None
    torch.testing.assert_close(out, x + 0.5, rtol=0, atol=0)
    assert {"kernel": "add"} in jit.builds()


@needs_gpp
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "out", 3), r"add takes 4 arguments, got 3: add\(const float\* x, float\* out, int64_t n, float a\)"),
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
        jit.cpp(ADD).add(*[tensors[a] if isinstance(a, str) else a for a in arguments])


@needs_gpp
def test_reinterpreted_bytes_pass_where_no_mistake_is_certain() -> None:
    library = jit.cpp('extern "C" int first(const unsigned* words, const void* bytes) { return words[0] + !bytes; }')
    assert library.first(torch.tensor([1, 1, 0, 0], dtype=torch.int8), torch.zeros(1, dtype=torch.float64)) == 257


@needs_gpp
def test_cpp_error_shows_the_lines_of_the_source() -> None:
    source = '#include <vector>\nextern "C" void f(float* x) {\n  int unused = 1;\n  x[0] = missing;\n  broken(\n}\n'
    with pytest.raises(jit.CompileError) as caught:
        jit.cpp(source, options=["-Wall"])
    message = str(caught.value)
    assert "candidate.cpp:4:10: error: 'missing' was not declared" in message
    assert "4 |   x[0] = missing;\n      |          ^~" in message
    assert "warning" not in message
    assert "warning" in caught.value.log
    assert len(message.splitlines()) <= 40


@needs_gpp
def test_cpp_reports_what_cannot_be_linked() -> None:
    with pytest.raises(jit.CompileError, match=r"undefined reference to `elsewhere\(\)'"):
        jit.cpp('void elsewhere();\nextern "C" void f() { elsewhere(); }')


USE_ADD = f"""
import sys, torch
from agentgen import jit
x = torch.ones(2)
jit.cpp({ADD!r}, options=sys.argv[1]).add(x, x, 2, 1.0)
print(x.tolist())
"""


def _other_process(option: str, **environment: str) -> subprocess.Popen[str]:
    """Builds ADD with `option`, runs it on two ones and prints the result."""
    variables = {**os.environ, "PYTHONPATH": str(Path(jit.__file__).parents[1]), **environment}
    command = [sys.executable, "-c", USE_ADD, option]
    return subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE)


@needs_gpp
def test_cache_hit_needs_no_compiler(tmp_path: Path) -> None:
    jit.cpp(ADD, options=["-DHIT"])
    process = _other_process("-DHIT", PATH=str(tmp_path))
    assert process.communicate(timeout=60)[0] == "[2.0, 2.0]\n"


def test_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"no C\+\+ compiler: install g\+\+"):
        jit.cpp(ADD, options=["-DNEVER_BUILT"])


@needs_gpp
def test_newer_compiler_builds_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    jit.cpp(ADD, options=["-DNEWER"])
    before = set(cache.glob("*.so"))
    newer = tmp_path / "g++"
    newer.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@"\n')
    newer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    jit.cpp(ADD, options=["-DNEWER"])
    assert len(set(cache.glob("*.so")) - before) == 1


@needs_gpp
def test_processes_may_build_the_same_source_at_once(cache: Path) -> None:
    before = set(cache.iterdir())
    processes = [_other_process("-DPARALLEL") for _ in range(2)]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["[2.0, 2.0]\n"] * 2
    assert sorted(file.suffix for file in set(cache.iterdir()) - before) == [".log", ".so"]


@needs_gpp
def test_cache_folder_that_cannot_be_written_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    x = torch.ones(2)
    jit.cpp(ADD).add(x, x, 2, 1.0)
    assert x.tolist() == [2.0, 2.0]


# ---- CUDA C++, compiled only -----------------------------------------------------------------------------------------

SCALE = r"""
extern "C" __global__ void __launch_bounds__(1024) scale(
    const float* __restrict__ x, float* out, int64_t n, float a) {
  __shared__ float tile[64];
  tile[threadIdx.x % 64] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < n) out[threadIdx.x] = a * tile[(threadIdx.x + 1) % 64];
}
"""

GREEDY = r"""
extern "C" __global__ void greedy(float* x, int n) {
  float kept[48];
  for (int i = 0; i < 48; i++) kept[i] = x[i * n];
  __syncthreads();
  for (int i = 0; i < 48; i++) x[i * n + 1] = kept[i] * kept[47 - i];
}
"""

HOPPER = r"""
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
extern __shared__ float dynamic[];
helper_mark float half_of(float value) { return value / 2; }
extern "C" __global__ void asynchronous(const float* x, float* out) {
  unsigned target = (unsigned)__cvta_generic_to_shared(dynamic + 4 * threadIdx.x);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(target), "l"(x + 4 * threadIdx.x));
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;");
  __syncthreads();
  out[threadIdx.x] = half_of(dynamic[threadIdx.x]);
}
extern "C" __global__ void tensor_tf32(const uint32_t* a, const uint32_t* b, float* c) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  c[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void warp_group(uint64_t a, uint64_t b, float* c) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("{ wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
  c[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void fragments(const half* a, const half* b, float* c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> left;
  fragment<matrix_b, 16, 16, 16, half, col_major> right;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  load_matrix_sync(left, a, 16);
  load_matrix_sync(right, b, 16);
  mma_sync(sum, left, right, sum);
  store_matrix_sync(c, sum, 16, mem_row_major);
}
"""


@pytest.mark.usefixtures("nvrtc")
def test_cuda_report_has_registers_spills_and_shared_memory() -> None:
    kernels = jit.cuda(SCALE + GREEDY, options=["--maxrregcount=24", "-O3"], arch="80")
    scale, greedy = sorted(kernels.report, key=lambda entry: str(entry["kernel"]), reverse=True)
    assert scale == {"kernel": "scale", "registers": scale["registers"], "spill_bytes": 0, "shared_bytes": 256}
    assert 4 <= scale["registers"] <= 24
    assert greedy["spill_bytes"] > 0
    assert all(entry in jit.builds() for entry in kernels.report)
    assert repr(kernels.scale) == ("<CUDA kernel scale(const float* __restrict__ x, float* out, int64_t n, float a)>")


@pytest.mark.usefixtures("nvrtc")
def test_cuda_hopper_instructions_compile_without_a_gpu() -> None:
    kernels = jit.cuda(HOPPER.replace("helper_mark", ""), arch="sm_90a")
    names = ["asynchronous", "fragments", "tensor_tf32", "warp_group"]
    assert sorted(entry["kernel"] for entry in kernels.report) == names
    with pytest.raises(jit.CompileError, match="wgmma"):
        jit.cuda(HOPPER.replace("helper_mark", "__device__"), arch="sm_80")


@pytest.mark.usefixtures("nvrtc")
def test_cuda_error_shows_the_lines_of_the_source() -> None:
    source = 'extern "C" __global__ void f(float* x, int n) {\n  int unused;\n  x[n] = missing;\n  broken(x);\n}\n'
    with pytest.raises(jit.CompileError) as caught:
        jit.cuda(source)
    message = str(caught.value)
    assert 'candidate.cu(3): error: identifier "missing" is undefined\n    x[n] = missing;\n           ^' in message
    assert 'candidate.cu(4): error: identifier "broken" is undefined' in message
    assert message.startswith("candidate.cu does not compile (NVRTC), 2 error(s):")
    assert "unused" not in message
    assert "unused" in caught.value.log


@pytest.mark.usefixtures("nvrtc")
def test_cuda_error_in_inline_ptx_is_traced_to_its_line() -> None:
    source = (
        'extern "C" __global__ void f(float* x, int n) {\n  x[n] = 1;\n  asm volatile("cp.foo %0;" :: "r"(n));\n}\n'
    )
    with pytest.raises(jit.CompileError, match=r"`cp.foo %r\d+;` is from candidate.cu\(3\): asm volatile"):
        jit.cuda(source)


@pytest.mark.usefixtures("nvrtc")
def test_cuda_says_that_there_are_no_torch_headers() -> None:
    with pytest.raises(jit.CompileError, match=r"cannot open source file .*\n(.*\n)*NVRTC has CUDA's headers"):
        jit.cuda("#include <torch/extension.h>\n")
    with pytest.raises(jit.CompileError, match="unrecognized option --no-such-option"):
        jit.cuda(SCALE, options="--no-such-option")


@pytest.mark.usefixtures("nvrtc")
def test_cuda_many_errors_stay_a_short_message() -> None:
    lines = "\n".join(f"  x[{i}] = missing{i};" for i in range(90))
    with pytest.raises(jit.CompileError, match=r"more lines in \.log") as caught:
        jit.cuda(f'extern "C" __global__ void f(float* x) {{\n{lines}\n}}')
    assert len(str(caught.value).splitlines()) <= 40


@pytest.mark.usefixtures("nvrtc")
def test_cuda_host_headers_and_macros_of_c_are_there() -> None:
    source = r"""
#include <stdint.h>
#include <math.h>
#include <float.h>
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
extern "C" __global__ void f(float* x, uint32_t n) { x[n] = fmaxf(-INFINITY, -FLT_MAX) + expf(x[0]) + NAN; }
"""
    assert jit.cuda(source).report[0]["kernel"] == "f"


@pytest.mark.usefixtures("nvrtc")
def test_cuda_lookup_and_launch_shape_mistakes_are_told() -> None:
    kernels = jit.cuda(SCALE + "__global__ void mangled(int n) {}" + GREEDY)
    with pytest.raises(AttributeError, match=r'`mangled`.*there are: scale, greedy\. Is it defined extern "C"\?'):
        _ = kernels.mangled
    with pytest.raises(TypeError, match=r"say grid and block: kernels.scale\[grid, block\]"):
        kernels.scale(1)
    with pytest.raises(TypeError, match=r"kernels.scale\[grid, block\] or"):
        kernels.scale[8]
    for shared in (-1, 16.0, None):
        with pytest.raises(ValueError, match=r"dynamic_shared_bytes=.* must be an integer"):
            kernels.scale[1, 32, shared]
    for grid in (0, 1.5, (1, 2, 3, 4), (1, -1)):
        with pytest.raises(ValueError, match=r"grid=.* must be one to three integers above 0"):
            kernels.scale[grid, 32]


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_launch_without_a_gpu_says_so() -> None:
    with pytest.raises(RuntimeError, match="no CUDA device: compiled only"):
        jit.cuda(SCALE).scale[1, 64](torch.zeros(64), torch.zeros(64), 64, 2.0)


@pytest.mark.usefixtures("nvrtc")
def test_cuda_cache_hit_is_byte_identical_and_keeps_the_report(cache: Path) -> None:
    first = jit.cuda(SCALE, options=["-DHIT"], arch="sm_80")
    files = {file: file.stat().st_mtime_ns for file in cache.iterdir()}
    second = jit.cuda(SCALE, options=["-DHIT"], arch="sm_80")
    assert second.report == first.report
    assert {file: file.stat().st_mtime_ns for file in cache.iterdir()} == files
    jit.cuda(SCALE, options=["-DHIT"], arch="sm_90a")
    assert len(set(cache.glob("*.cubin")) - set(files)) == 1


# ---- CUDA C++ on a GPU -----------------------------------------------------------------------------------------------

GPU = r"""
extern __shared__ float tile[];
extern "C" __global__ void add(const float* x, float* out, int64_t n, float a, bool twice, double b, unsigned char c) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[blockIdx.x * n + i];
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    out[blockIdx.x * n + i] = (twice ? 2 : 1) * tile[n - 1 - i] + a + (float)b + c;
}
extern "C" __global__ void slow(float* out, int64_t cycles) {
  for (int64_t start = clock64(); clock64() - start < cycles;) {}
  out[0] += 1;
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void grid_size(int* out) {
  out[0] = gridDim.x; out[1] = gridDim.y; out[2] = gridDim.z;
  out[3] = blockDim.x; out[4] = blockDim.y; out[5] = blockDim.z;
}
"""


@pytest.fixture(scope="module")
def on_gpu(nvrtc: None) -> jit.Kernels:
    return jit.cuda(GPU)


@needs_gpu
@pytest.mark.gpu
def test_gpu_add_with_much_dynamic_shared_memory(on_gpu: jit.Kernels) -> None:
    for n in (1000, 15_000, 12_500, 20_000):  # bytes: below 48 KiB, above it, less again, more again
        x, out = torch.randn(3, n, device="cuda"), torch.empty(3, n, device="cuda")
        on_gpu.add[3, 256, 4 * n](x, out, n, 0.5, True, 0.25, 3)
        torch.testing.assert_close(out, 2 * x.flip(1) + 3.75)


@needs_gpu
@pytest.mark.gpu
def test_gpu_shapes_arrive_and_a_kernel_may_have_no_parameters(on_gpu: jit.Kernels) -> None:
    out = torch.zeros(6, dtype=torch.int32, device="cuda")
    on_gpu.grid_size[(4, 3), (8, 2, 1)](out)
    assert out.tolist() == [4, 3, 1, 8, 2, 1]
    on_gpu.nothing[1, 1]()
    torch.cuda.synchronize()


@needs_gpu
@pytest.mark.gpu
def test_gpu_launch_goes_to_the_current_stream(on_gpu: jit.Kernels) -> None:
    out = torch.zeros(1, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        on_gpu.slow[1, 1](out, 200_000_000)  # about 0.1 s
    assert not side.query()
    assert torch.cuda.current_stream().query()
    side.synchronize()
    assert out.item() == 1


@needs_gpu
@pytest.mark.gpu
def test_gpu_launch_can_be_captured_in_a_graph(on_gpu: jit.Kernels) -> None:
    x, out = torch.randn(1, 64, device="cuda"), torch.zeros(1, 64, device="cuda")
    on_gpu.add[1, 64, 256](x, out, 64, 0.0, False, 0.0, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        on_gpu.add[1, 64, 256](x, out, 64, 1.0, False, 0.0, 0)
    x.fill_(5)
    graph.replay()
    torch.testing.assert_close(out, torch.full_like(out, 6))


@needs_gpu
@pytest.mark.gpu
def test_gpu_first_launch_of_a_thread_finds_the_context(on_gpu: jit.Kernels) -> None:
    x, out = torch.randn(1, 64, device="cuda"), torch.zeros(1, 64, device="cuda")
    errors: list[Exception] = []

    def launch() -> None:
        try:
            on_gpu.add[1, 64, 256](x, out, 64, 0.0, False, 0.0, 0)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert errors == []
    torch.testing.assert_close(out, x.flip(1))


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 2048), r"add: CUDA_ERROR_INVALID_VALUE \(1\).*block=\(2048, 1, 1\).*registers=\d+; a block may have 1024"),
        (
            (1, 32, 300_000),
            r"dynamic shared bytes=300000 .*a block may use \d+ bytes of shared memory, this one wants 300000",
        ),
        (((1, 70_000), 32), r"grid=\(1, 70000, 1\)"),
    ],
)
def test_gpu_launch_that_cannot_be_is_explained_and_harms_no_later_one(
    on_gpu: jit.Kernels, shape: tuple[Any, ...], message: str
) -> None:
    x, out = torch.randn(1, 64, device="cuda"), torch.zeros(1, 64, device="cuda")
    with pytest.raises(RuntimeError, match=message):
        on_gpu.add[shape](x, out, 64, 0.0, False, 0.0, 0)
    on_gpu.add[1, 64, 256](x, out, 64, 0.0, False, 0.0, 0)
    torch.testing.assert_close(out, x.flip(1))


@needs_gpu
@pytest.mark.gpu
def test_gpu_tensor_on_the_cpu_is_refused(on_gpu: jit.Kernels) -> None:
    with pytest.raises(TypeError, match=r"grid_size, argument 1 `int\* out`: got a tensor on cpu, needs one on cuda"):
        on_gpu.grid_size[1, 1](torch.zeros(6, dtype=torch.int32))


@needs_gpu
@pytest.mark.gpu
def test_gpu_second_device_is_followed(on_gpu: jit.Kernels) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device only")
    out = torch.zeros(6, dtype=torch.int32, device="cuda:1")
    on_gpu.grid_size[2, 3](out)
    assert out.tolist() == [2, 1, 1, 3, 1, 1]
    assert torch.cuda.current_device() == 0


@needs_gpu
@pytest.mark.gpu
def test_gpu_driver_agrees_with_the_report(on_gpu: jit.Kernels) -> None:
    report = {entry["kernel"]: entry for entry in on_gpu.report}
    driver, module, function, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    torch.zeros(1, device="cuda")
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "agentgen" / "jit"
    images = [file.read_bytes() for file in cache.glob("*.cubin") if b"grid_size" in file.read_bytes()]
    assert driver.cuModuleLoadData(ctypes.byref(module), images[0]) == 0
    for name, entry in report.items():
        assert driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()) == 0
        assert driver.cuFuncGetAttribute(ctypes.byref(value), 4, function) == 0  # CU_FUNC_ATTRIBUTE_NUM_REGS
        assert value.value == entry["registers"]
