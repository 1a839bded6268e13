"""Libraries of candidates, built and mapped for real; processor time, sampled for real."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from verify_checks import symbols_check, time_check

from agentgen import jit
from agentgen.records.problem import OwnWork
from agentgen.sandbox.guest.sampler import sampling
from agentgen.sandbox.maps import ANONYMOUS, executables
from agentgen.verify.checks.elf import Symbols, read_symbols
from agentgen.verify.checks.native import NativeLibrary, mapped_files, own_libraries

TORCH = os.path.join(os.path.dirname(torch.__file__), "lib")
LINKED = [f"-L{TORCH}", "-l:libtorch_cpu.so"]
SIZE = 192
GEMM = """void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
    const float*, const int*, const float*, float*, const int*)"""
OWN = """
extern "C" void matmul(const float* a, const float* b, float* c, int n) {
    #pragma omp parallel for
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j];
}
"""
LOOKED_UP = """
#include <dlfcn.h>
extern "C" int matmul(const float* a, const float* b, float* c, int n) {
    void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    auto gemm = (%s)dlsym(torch, "sgemm_");
    const float one = 1, zero = 0;
    gemm("N", "N", &n, &n, &n, &one, b, &n, a, &n, &zero, c, &n);
    return dlclose(torch);
}
""".replace("%s", GEMM)
PASSED_IN = """
#include <stdint.h>
extern "C" void matmul(int64_t function, const float* a, const float* b, float* c, int n) {
    const float one = 1, zero = 0;
    ((%s)function)("N", "N", &n, &n, &n, &one, b, &n, a, &n, &zero, c, &n);
}
""".replace("%s", GEMM)
BLAS = """
extern "C" void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
    const int*, const float*, const int*, const float*, float*, const int*);
extern "C" void matmul(const float* a, const float* b, float* c, int n) {
    const float one = 1, zero = 0;
    sgemm_("N", "N", &n, &n, &n, &one, b, &n, a, &n, &zero, c, &n);
}
"""
ATEN = """
namespace at { class Tensor; namespace _ops { struct %(op)s { static Tensor call(const Tensor&, const Tensor&); }; } }
extern "C" void* address() { return (void*)&at::_ops::%(op)s::call; }
"""


@pytest.fixture(scope="module", name="scratch")
def _scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        try:
            jit.cpp('extern "C" int probe() { return 1; }')
        except RuntimeError as error:
            pytest.skip(str(error))
        yield folder


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Guests' threads wait passively; those of this process spin."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Brought:
    """A library as a candidate would bring it, and what the judge finds of it."""

    def __init__(self, scratch: Path, source: str, options: list[str] | None = None) -> None:
        before = mapped_files(os.getpid())
        self.library: Any = jit.cpp(source, options or ())
        self.found = own_libraries(os.getpid(), before, scratch)


@pytest.fixture(scope="module", name="own")
def _own(scratch: Path) -> Brought:
    return Brought(scratch, OWN)


def sampled(call: Callable[[], object]) -> dict[str, int]:
    call()
    end = time.process_time() + 0.25
    with sampling(True) as samples:
        while time.process_time() < end:
            call()
    return samples


def square() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE), torch.zeros(SIZE, SIZE)


def test_own_code_is_own(own: Brought, scratch: Path) -> None:
    a, b, c = square()
    (library,) = own.found
    assert Path(library.path).is_relative_to(scratch)
    assert symbols_check(own.found).passed
    check = time_check(sampled(lambda: own.library.matmul(a, b, c, SIZE)), own.found)
    assert check.passed, check.evidence


def test_a_function_looked_up_at_run_time_is_seen_twice(scratch: Path) -> None:
    brought, (a, b, c) = Brought(scratch, LOOKED_UP), square()
    check = symbols_check(brought.found)
    assert check.passed is False
    assert "looks symbols up at run time: dlopen, dlsym" in check.evidence
    samples = sampled(lambda: brought.library.matmul(a, b, c, SIZE))
    torch.testing.assert_close(c, a @ b)
    check = time_check(samples, brought.found)
    assert check.passed is False
    assert "libtorch_cpu.so" in check.evidence
    assert time_check(samples, brought.found, moved=1.0).passed is False
    assert time_check(samples, brought.found, policy=OwnWork.LIBRARY).passed is None


def test_a_function_passed_in_from_python_is_seen_by_its_time(scratch: Path) -> None:
    brought, (a, b, c) = Brought(scratch, PASSED_IN), square()
    gemm = ctypes.cast(ctypes.CDLL(os.path.join(TORCH, "libtorch_cpu.so")).sgemm_, ctypes.c_void_p).value
    assert symbols_check(brought.found).passed
    check = time_check(sampled(lambda: brought.library.matmul(gemm, a, b, c, SIZE)), brought.found)
    assert check.passed is False
    assert "libtorch_cpu.so" in check.evidence


def test_code_that_a_library_generates_is_no_own_work() -> None:
    x, w = torch.rand(1, 64, 28, 28), torch.rand(64, 64, 3, 3)
    samples = sampled(lambda: torch.conv2d(x, w))
    assert samples[ANONYMOUS] > 0  # oneDNN
    assert time_check(samples, []).passed is False


def test_linking_against_a_math_library_is_refused(scratch: Path) -> None:
    brought = Brought(scratch, BLAS, LINKED)
    check = symbols_check(brought.found)
    assert check.passed is False
    assert "calls a library's compute: sgemm_" in check.evidence
    assert symbols_check(brought.found, OwnWork.LIBRARY).passed is None


@pytest.mark.parametrize(
    ("operator", "free"),
    [("mm", False), ("add_Tensor", False), ("softmax_int", False), ("unfold_backward", False), ("nobody_knows", False),
     ("empty_memory_format", True), ("copy_", True), ("fill__Scalar", True), ("to_dtype", True), ("item", True)],
)  # fmt: skip
def test_of_torch_s_operators_the_free_ones_may_be_called(operator: str, free: bool) -> None:
    name = f"_ZN2at4_ops{len(operator)}{operator}4callERKNS_6TensorES4_"
    check = symbols_check([NativeLibrary("x.so", Symbols(frozenset({name, "_ZN3c105ErrorD1Ev"}), frozenset()))])
    assert check.passed == free
    assert free or name in check.evidence


def test_an_operator_in_a_real_library_is_found(scratch: Path) -> None:
    brought = Brought(scratch, ATEN.replace("%(op)s", "matmul"), LINKED)
    assert "_ZN2at4_ops6matmul4callERKNS_6TensorES4_" in symbols_check(brought.found).evidence


@pytest.mark.parametrize(
    "name",
    [
        *("cblas_sgemm", "mkl_sparse_s_mm", "MKL_Somatcopy", "dnnl_sgemm", "openblas_set_num_threads", "vsExp"),
        *("SGEMM", "dgemv_64_", "aoti_torch_cpu_mm_out", "cublasSgemm_v2", "dlmopen", "_ZN4dnnl6matmulC1Ev"),
        *("_ZN2at3cpu2mmERKNS_6TensorES3_", "_ZN2at6native7cpublas4gemmENS0_13TransposeTypeES2_lll"),
        *("_ZN2at6native11mm_sparse_xE", "_ZN6fbgemm4packEv", "VMSEXP", "vdln_"),
        "_ZN2at25compositeexplicitautograd8mean_outERNS_6TensorERKS1_N3c108optionalINS4_10ScalarTypeEEE",
    ],
)
def test_compute_of_libraries_has_many_names(name: str) -> None:
    assert symbols_check([NativeLibrary("x.so", Symbols(frozenset({name}), frozenset()))]).passed is False


def test_nothing_of_the_system_s_own_libraries_is_called_compute() -> None:
    wanted = ("libc.so", "libm.so", "libgomp", "libgcc_s", "ld-linux")  # libstdc++: 1 s
    files = {e.name for e in executables() if os.path.basename(e.name).startswith(wanted)}
    assert len(files) >= 4
    exports = frozenset[str]().union(*(read_symbols(Path(file).read_bytes()).exports for file in files))
    assert {"memcpy", "vsnprintf", "expf", "omp_get_num_threads"} <= exports
    check = symbols_check([NativeLibrary("x.so", Symbols(exports, frozenset()))])
    refused = set(check.evidence.partition("time: ")[2].split(", "))
    assert refused <= {"dlopen", "dlmopen", "dlsym", "dlvsym", "dl_iterate_phdr", "_r_debug", "_dl_sym"}


def test_a_copied_math_library_is_no_own_work(scratch: Path) -> None:
    brought = Brought(scratch, 'extern "C" void cblas_sgemm() {}  extern "C" void sgemm() {}')
    check = symbols_check(brought.found)
    assert check.passed is False
    assert "is a math library itself: it defines cblas_sgemm" in check.evidence  # a kernel may be called sgemm


def test_a_library_that_python_maps_late_is_not_the_candidate_s(scratch: Path) -> None:
    late = "import ctypes, sqlite3, ssl, sys; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", late], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as python:
        assert python.stdout
        assert python.stdout.readline()
        assert any("_ssl" in name for name in mapped_files(python.pid))
        assert own_libraries(python.pid, (), scratch) == []
        python.communicate()


def test_a_library_outside_the_scratch_folder_or_removed_is_found(own: Brought, scratch: Path, tmp_path: Path) -> None:
    before = mapped_files(os.getpid())
    elsewhere = tmp_path / "libc.so.6"
    shutil.copyfile(own.found[0].path, elsewhere)
    library = ctypes.CDLL(str(elsewhere))
    elsewhere.unlink()
    (found,) = own_libraries(os.getpid(), before, scratch)
    assert found.path == str(elsewhere)
    # Who may not follow the kernel's link cannot read it, and then it is refused.
    assert ("matmul" in found.symbols.exports) != bool(found.unreadable)
    assert symbols_check([found]).passed is not bool(found.unreadable)
    del library


def test_a_library_that_cannot_be_read_is_refused() -> None:
    nothing = Symbols(frozenset(), frozenset())
    check = symbols_check([NativeLibrary("/x/y.so", nothing, "damaged")])
    assert check.passed is False
    assert check.evidence == "y.so cannot be read: damaged"
    assert symbols_check([NativeLibrary("/x/y.so", nothing, "damaged")], OwnWork.LIBRARY).passed is None


def test_without_native_code_there_is_nothing_to_borrow() -> None:
    assert symbols_check([]).evidence == "the candidate brought no native library"


EXTENSION = """
#include <torch/extension.h>
torch::Tensor doubled(torch::Tensor x) {
    TORCH_CHECK(x.is_contiguous() && x.scalar_type() == at::kFloat, "contiguous float32 only");
    auto y = at::empty(x.sizes(), x.options());
    auto scale = torch::zeros({x.size(0)}, x.options()).contiguous().to(at::kDouble);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    at::parallel_for(0, x.numel(), 1024, [&](int64_t i, int64_t end) { for (; i < end; i++) to[i] = 2 * from[i]; });
    return y.clone();
}
"""


@pytest.mark.slow
def test_an_extension_on_torch_s_headers_passes_if_it_computes_itself(tmp_path: Path) -> None:
    from torch.utils.cpp_extension import load_inline

    before = mapped_files(os.getpid())
    extension: Any = load_inline("extension", EXTENSION, functions=["doubled"], build_directory=str(tmp_path))
    torch.testing.assert_close(extension.doubled(torch.ones(3)), torch.full((3,), 2.0))
    libraries = own_libraries(os.getpid(), before, tmp_path)
    assert [Path(library.path).name for library in libraries] == ["extension.so"]
    check = symbols_check(libraries)
    assert check.passed, check.evidence


BORROWED = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/relu.h>
extern "C" void borrowed(at::Tensor* x) { *x = at::relu(*x); }
"""


@pytest.mark.slow
def test_one_that_lets_torch_compute_does_not(tmp_path: Path) -> None:
    from torch.utils.cpp_extension import include_paths, library_paths

    before = mapped_files(os.getpid())
    (tmp_path / "borrowed.cpp").write_text(BORROWED)
    # The two headers alone: all of torch's take g++ half a minute.
    headers = [f"-I{path}" for path in include_paths()]
    libraries = [*(f"-L{path}" for path in library_paths()), "-ltorch_cpu", "-lc10"]
    command = ["g++", "-std=c++20", "-fPIC", "-shared", *headers, "borrowed.cpp", *libraries, "-o", "borrowed.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "borrowed.so"))
    check = symbols_check(own_libraries(os.getpid(), before, tmp_path))
    assert check.passed is False
    assert "relu" in check.evidence
    del library
