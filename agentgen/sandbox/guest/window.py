"""A window: n calls of a model over rotating input sets, each output copied natively into memory the judge sees.

Guest and judge run this same code, the guest for the candidate, the judge for its baselines: checking and timing are
one command, and both sides of a ratio pay for the same copies.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from agentgen.sandbox.guest.memory import check, driver

Tensors = Sequence[torch.Tensor]


class WrongOutput(Exception):
    """The model's answer is no tensor of the expected kind; `kind` is one of type, shape, dtype, layout."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class GateLike(Protocol):
    """What a window needs of a gate."""

    def close_behind(self, shot: int) -> None: ...
    def mark(self, shot: int) -> None: ...


@dataclass(frozen=True)
class Shot:
    """One gated window: the gate, and the number that its words will carry."""

    gate: GateLike
    number: int


def run_window(
    call: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    outputs: Sequence[Tensors],
    calls: int,
    shot: Shot | None = None,
) -> Callable[[], float]:
    """Runs, or behind a gate only queues, `calls` calls. Call i reads `inputs[i % K]` and fills `outputs[i % M]`.

    Returns:
        A function that waits for the device and returns this process's own figure for the calls, in seconds: an event
        pair round them on a GPU, the wall clock on a CPU.

    Raises:
        WrongOutput: an output has another type, shape, dtype or layout than its buffer.
    """
    on_gpu = outputs[0][0].is_cuda
    copy = _copy_device if on_gpu else _copy_host
    if not on_gpu:
        start = time.perf_counter()
        _calls(call, inputs, outputs, calls, copy)
        seconds = time.perf_counter() - start
        return lambda: seconds
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if shot:
        shot.gate.close_behind(shot.number)
    first.record()
    _calls(call, inputs, outputs, calls, copy)
    last.record()
    if shot:
        shot.gate.mark(shot.number)

    def finish() -> float:
        torch.cuda.synchronize()
        return first.elapsed_time(last) / 1e3

    return finish


def _calls(
    call: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    outputs: Sequence[Tensors],
    calls: int,
    copy: Callable[[torch.Tensor, torch.Tensor], None],
) -> None:
    with torch.no_grad():
        for i in range(calls):
            answer = call(*inputs[i % len(inputs)])
            for source, target in zip(_as_tensors(answer, len(outputs[0])), outputs[i % len(outputs)], strict=True):
                _require_like(source, target)
                copy(source, target)


def _as_tensors(answer: Any, count: int) -> Sequence[Any]:
    if count == 1 and not isinstance(answer, tuple | list):
        return (answer,)
    if not isinstance(answer, tuple | list) or len(answer) != count:
        got = f"{len(answer)} values" if isinstance(answer, tuple | list) else type(answer).__name__
        raise WrongOutput("shape", f"the reference returns {count} tensors, this returned {got}")
    return answer


def _require_like(source: Any, target: torch.Tensor) -> None:
    # The exact type: a subclass can compute lazily, after the clock has stopped.
    if type(source) is not torch.Tensor:
        raise WrongOutput("type", f"returned {type(source).__qualname__}, not a plain torch.Tensor")
    if source.shape != target.shape:
        raise WrongOutput("shape", f"returned shape {tuple(source.shape)}, the reference {tuple(target.shape)}")
    if source.dtype != target.dtype:
        raise WrongOutput("dtype", f"returned {source.dtype}, the reference {target.dtype}")
    if source.device != target.device:
        raise WrongOutput("layout", f"returned a tensor on {source.device}, the reference on {target.device}")
    if not source.is_contiguous():
        raise WrongOutput("layout", f"returned strides {source.stride()}; the reference's output is contiguous")


def _copy_host(source: torch.Tensor, target: torch.Tensor) -> None:
    ctypes.memmove(target.data_ptr(), source.data_ptr(), target.nbytes)


def _copy_device(source: torch.Tensor, target: torch.Tensor) -> None:
    cuda = driver()
    stream = torch.cuda.current_stream().cuda_stream
    code = cuda.cuMemcpyDtoDAsync_v2(
        ctypes.c_ulonglong(target.data_ptr()),
        ctypes.c_ulonglong(source.data_ptr()),
        ctypes.c_size_t(target.nbytes),
        ctypes.c_void_p(stream),
    )
    check(cuda, code, "cuMemcpyDtoDAsync")
