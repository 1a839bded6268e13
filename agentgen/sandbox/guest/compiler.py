"""Triton's compiler, ready before a guest needs it: it hashes itself, loads LLVM, and builds its binding to the driver.

A guest's first call of a kernel takes 0.4 s less for it on an H200. Nothing here touches the GPU, which a process whose
children are to use it must not (`zygote`).
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def _copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # pyright: ignore  # a kernel's arguments have no types
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def warm_up(arch: str) -> None:
    """Compiles a small kernel, and makes Triton's driver, which a guest then finds made.

    Args:
        arch: The device's architecture, e.g. `sm_90a`.
    """
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=_copy, signature=signature, constexprs={"BLOCK": 128})
    target = GPUTarget("cuda", int(arch.removeprefix("sm_").rstrip("af")), 32)
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of 3.9, about a default that will change
        knobs.cache.dir = folder
        # A compiler that does not work is the guest's to report: there it has a trial to be reported in.
        with contextlib.suppress(Exception):
            triton.compile(source, target=target)
        with contextlib.suppress(Exception):
            _make_driver()


def _make_driver() -> None:
    # Not by asking for the active one: that looks for a device, and with it initialises CUDA.
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime import driver

    driver.set_active(CudaDriver())
