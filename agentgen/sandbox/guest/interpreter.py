"""Makes Triton's interpreter (triton 3.6 to 3.9, CPU, no driver) good enough to check a candidate's arithmetic.

As it comes, `@triton.autotune` and `triton.runtime.driver.active` need a GPU, and bf16 comes out as noise, silently.
`install` patches the interpreter of this process, once:

1. bf16 is computed in fp32 and rounded, or raises (bfloat16.py).
2. `@triton.autotune` takes the first config that pruning leaves, without running any.
3. `triton.runtime.driver.active` answers as an H100 would, except that tensors live on the CPU.
4. Every version gets what a later one repaired: `range` up to a run-time value with numpy >= 2.4 (3.7), and
   `tl.maximum` and `tl.minimum` of a NaN and a number, which are the number (3.9).

Not covered:
    * An access outside a tensor is a real access to this process's memory: SIGSEGV, or a neighbour's bytes. That is
      left so because a guest is a process of its own, and nothing else falls with it.
    * Programs run one after the other: races between them, missing barriers and deadlocks do not show. Masked-off
      elements of a load without `other` are zeros, where a GPU promises nothing.
    * fp8 is as the interpreter has it: its rounding of ties and overflows is wrong.
    * Inline assembly and libdevice raise. `kernel.warmup()` returns None. Only one autotune config is ever checked.
      What the hardware limits (shared memory, 16 as the least side of a `tl.dot`) is for the compiler to find.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from agentgen.sandbox.guest.bfloat16 import Bfloat16

# What `cuDeviceGetAttribute` gives for an H100 SXM (clocks in kHz, bus in bits: 2 * 2619 MHz * 5120 bit = 3.35 TB/s, as
# in NVIDIA's data sheet). Candidates size persistent grids by it.
_H100_PROPERTIES = types.MappingProxyType(
    {
        "max_shared_mem": 232448,
        "max_num_regs": 65536,
        "multiprocessor_count": 132,
        "warpSize": 32,
        "sm_clock_rate": 1980000,
        "mem_clock_rate": 2619000,
        "mem_bus_width": 5120,
    }
)


@functools.cache  # a second call must not wrap the wrappers
def install() -> None:
    """Patches Triton's interpreter in this process. TRITON_INTERPRET=1 must have been set before triton was imported.

    Raises:
        ImportError: Triton is not installed, or is not one that this module knows.
        RuntimeError: Triton was imported to compile, not to interpret.
    """
    try:
        import triton.language as tl
        from triton.backends.compiler import GPUTarget
        from triton.runtime import driver, interpreter
        from triton.runtime.autotuner import Autotuner
    except ImportError as error:
        raise ImportError(f"Triton's interpreter cannot be loaded: {error}. Install triton 3.6 to 3.9.") from error
    if not isinstance(tl.sum, interpreter.InterpretedFunction):
        raise RuntimeError("Triton was imported to compile. Set TRITON_INTERPRET=1 before anything imports triton.")
    driver.set_active(_Driver(GPUTarget("cuda", 90, 32)))  # pyright: ignore[reportArgumentType]  it is asked, not launched
    # Not `driver.get_benchmarker` alone: `use_cuda_graph`, `warmup`, `rep` and `do_bench` of a candidate pass it by.
    Autotuner.do_bench = property(lambda _: _all_equal)  # pyright: ignore[reportAttributeAccessIssue]
    _backport(interpreter)
    Bfloat16(interpreter, tl).install()


# What needs a driver


def _all_equal(kernel_call: Callable[[], object], *, quantiles: Sequence[float] = (), **_: object) -> list[float]:
    """A benchmarker that runs nothing and finds every config equally fast, so that the first one is taken."""
    return [1.0] * max(1, len(quantiles))


class _Driver:
    """What candidates ask `triton.runtime.driver.active`; nothing can be launched with it."""

    def __init__(self, target: object) -> None:
        self._target = target
        self.utils = types.SimpleNamespace(get_device_properties=lambda device=0: dict(_H100_PROPERTIES))

    def get_current_target(self) -> object:
        return self._target

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        return 9, 0

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: object) -> None:
        """There is one device."""

    def get_current_stream(self, device: object = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> types.ModuleType:
        return torch.cpu

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return _all_equal


def _backport(interpreter: Any) -> None:
    """Gives every version what a later one repaired."""
    patch_tensor = interpreter._patch_lang_tensor

    def index(tensor: Any) -> int:
        return int(tensor.handle.data.item())

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", index)

    interpreter._patch_lang_tensor = patch_lang_tensor

    def larger(builder: Any, lhs: Any, rhs: Any) -> Any:
        return builder.binary_op(lhs, rhs, np.fmax)

    def smaller(builder: Any, lhs: Any, rhs: Any) -> Any:
        return builder.binary_op(lhs, rhs, np.fmin)

    interpreter.InterpreterBuilder.create_maxnumf = larger
    interpreter.InterpreterBuilder.create_minnumf = smaller
