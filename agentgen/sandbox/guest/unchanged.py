"""What a call must leave as it found it: torch's global state, and the tensors it is given.

Not covered: state that torch does not show (an environment variable, a library's own globals), and a candidate that
replaces the functions used here.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from agentgen.sandbox.guest.memory import set_aside_bytes
from agentgen.sandbox.guest.window import WrongOutput

Rows = Sequence[Sequence[Any]]


@contextmanager
def unchanged(rows: Rows, device: str) -> Generator[None]:
    """Requires that the block changes neither torch's global state nor what the tensors in `rows` are: their address,
    shape, strides and dtype. (Their content is the judge's to compare.)

    Raises:
        WrongOutput: kind "state", with what was changed, from what to what.
    """
    before, tensors = torch_state(device), _described(rows)
    yield
    after = torch_state(device)
    for name, value in before.items():
        if after[name] != value:
            raise WrongOutput("state", f"a call changed torch's {name} from {value} to {after[name]}")
    for was, now in zip(tensors, _described(rows), strict=True):
        if was != now:
            raise WrongOutput("state", f"a call changed its input from {was} to {now}")


def torch_state(device: str) -> dict[str, object]:
    """Returns torch's process-wide settings by name."""
    state: dict[str, object] = {
        "default dtype": torch.get_default_dtype(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "deterministic mode": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "interop threads": torch.get_num_interop_threads(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "cuDNN settings": (
            torch.backends.cudnn.enabled,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.allow_tf32,
        ),
        "random state": _digest(torch.get_rng_state()),
        "Python threads": threading.active_count(),
        "floating-point mode": _arithmetic(),
    }
    if device != "cpu":
        state["random state on the GPU"] = _digest(torch.cuda.get_rng_state(device))
        state["share of the L2 cache that is set aside"] = set_aside_bytes()
        state["current device"] = torch.cuda.current_device()
        state["current stream"] = torch.cuda.current_stream().cuda_stream
    return state


def _arithmetic() -> tuple[float, ...]:
    """Returns what this thread's processor makes of a denormal number and of two sums that must be rounded: other
    values where flush-to-zero, denormals-are-zero or another rounding is left switched on."""
    smallest, half = sys.float_info.min, sys.float_info.epsilon / 2
    return smallest / 4, smallest / 4 * 2, 1.0 + half, 1.0 + 1.5 * half, -1.0 - 1.5 * half


def _described(rows: Rows) -> list[str]:
    return [
        f"{tuple(x.shape)} strides {x.stride()} {x.dtype} at {x.data_ptr():#x}, requires_grad={x.requires_grad}"
        for row in rows
        for x in row
        if isinstance(x, torch.Tensor)
    ]


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha256(state.numpy().tobytes()).hexdigest()[:8]
