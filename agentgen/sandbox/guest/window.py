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

from agentgen.sandbox.guest.memory import check, driver, reset_persisting_cache

Tensors = Sequence[torch.Tensor]
Keep = Callable[[Tensors, Tensors], None]
"""What is done with one call's outputs and the buffers they belong into."""
Layouts = Sequence[Sequence[int] | None]


class WrongOutput(Exception):
    """The model's answer is no tensor of the expected kind; `kind` is one of type, shape, dtype, layout, state."""

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
    keep: Keep | None = None,
    layouts: Layouts | None = None,
) -> Callable[[], float]:
    """Runs, or behind a gate only queues, `calls` calls. Call i reads `inputs[i % K]` and fills `outputs[i % M]`.

    Args:
        call: The model.
        inputs: K rows of arguments.
        outputs: M rows of buffers.
        calls: n.
        shot: The gate to queue between, on a GPU.
        keep: What to do with the outputs of a call; by default they are copied into their buffers at once.
        layouts: Strides of torch's own outputs, None where they are contiguous. An output may have these, or be
            contiguous; without `layouts` any will do (torch's own, of a baseline).

    Returns:
        A function that waits for the device and returns this process's own figure for the calls, in seconds: an event
        pair round them on a GPU, the wall clock on a CPU.

    Raises:
        WrongOutput: an output has another type, shape, dtype or layout than is asked for.
    """
    keep = keep or copy_out
    if not outputs[0][0].is_cuda:
        start = time.perf_counter()
        _calls(call, inputs, outputs, calls, keep, layouts)
        seconds = time.perf_counter() - start
        return lambda: seconds
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if shot:
        reset_persisting_cache()
        shot.gate.close_behind(shot.number)
    first.record()
    _calls(call, inputs, outputs, calls, keep, layouts)
    last.record()
    if shot:
        shot.gate.mark(shot.number)

    def finish() -> float:
        torch.cuda.synchronize()
        return first.elapsed_time(last) / 1e3

    return finish


def copy_out(sources: Tensors, targets: Tensors) -> None:
    """Copies outputs into their contiguous buffers past torch's dispatcher, on the current stream; those of another
    layout by torch, which is the caller's time."""
    for source, target in zip(sources, targets, strict=True):
        if source.is_contiguous():
            copy_bytes((source,), (target,))
        else:
            target.copy_(source)


def copy_bytes(sources: Tensors, targets: Tensors) -> None:
    """Copies as many bytes as an output has into its buffer, in whatever order its elements lie."""
    for source, target in zip(sources, targets, strict=True):
        (_copy_device if target.is_cuda else _copy_host)(source, target)


def _calls(
    call: Callable[..., Any],
    inputs: Sequence[Sequence[Any]],
    outputs: Sequence[Tensors],
    calls: int,
    keep: Keep,
    layouts: Layouts | None,
) -> None:
    ours = frozenset(y.data_ptr() for row in outputs for y in row if y.numel())
    with torch.no_grad():
        for i in range(calls):
            answer = call(*inputs[i % len(inputs)])
            targets = outputs[i % len(outputs)]
            sources = _as_tensors(answer, len(targets))
            for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
                _require_like(source, target)
                if source.data_ptr() in ours:  # found in a frame of ours: it would spare itself the copy
                    raise WrongOutput("state", "returned the buffer that its output is to be copied to")
                if layouts is not None:
                    _require_layout(source, layouts[place])
            keep(sources, targets)


def _as_tensors(answer: Any, count: int) -> Sequence[Any]:
    if count == 1 and not isinstance(answer, tuple | list):
        return (answer,)
    if not isinstance(answer, tuple | list) or len(answer) != count:
        got = f"{len(answer)} values" if isinstance(answer, tuple | list) else type(answer).__name__
        raise WrongOutput("shape", f"the reference returns {count} tensors, this returned {got}")
    return tuple(answer)  # once: a list of the candidate's own may hold others the next time


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
    if source.requires_grad or source.grad_fn is not None:
        raise WrongOutput("layout", "returned a tensor that requires grad, called under no_grad")


def _require_layout(source: torch.Tensor, own: Sequence[int] | None) -> None:
    # Both, because torch's may be an accident of its backend: attention gives another one at another length.
    if source.is_contiguous():
        return
    steps = zip(source.shape, source.stride(), own or source.stride(), strict=True)
    if own is None or any(size > 1 and stride != wanted for size, stride, wanted in steps):
        reference = f"the reference's are {tuple(own)}" if own else "the reference's output is contiguous"
        raise WrongOutput("layout", f"returned strides {source.stride()}; {reference}")


def _copy_host(source: torch.Tensor, target: torch.Tensor) -> None:
    ctypes.memmove(target.data_ptr(), source.data_ptr(), target.nbytes)


def _copy_device(source: torch.Tensor, target: torch.Tensor) -> None:
    cuda = driver()
    # As Triton asks: through torch.cuda.current_stream() it takes 40 us, of 54 for the whole copy.
    stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())  # pyright: ignore[reportPrivateUsage]
    code = cuda.cuMemcpyDtoDAsync_v2(
        ctypes.c_ulonglong(target.data_ptr()),
        ctypes.c_ulonglong(source.data_ptr()),
        ctypes.c_size_t(target.nbytes),
        ctypes.c_void_p(stream),
    )
    check(cuda, code, "cuMemcpyDtoDAsync")
