"""Which ATen operators a call dispatches: by them the judge sees work that torch does for the candidate.

A mode of torch's dispatcher sees every operator called from Python or from C++ (`at::matmul` in an extension too).
Not covered: libraries called past the dispatcher (cuBLAS through ctypes), and a candidate that leaves the mode.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Recorder(TorchDispatchMode):
    def __init__(self, seen: dict[str, int]) -> None:
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func)
        self._seen[name] = self._seen.get(name, 0) + 1
        return func(*args, **(kwargs or {}))


@contextmanager
def recording(record: bool) -> Generator[dict[str, int]]:
    """Yields a dict that fills with operator names and counts while the block runs; stays empty if not `record`."""
    seen: dict[str, int] = {}
    if not record:
        yield seen
        return
    with _Recorder(seen):
        yield seen


def warm_up() -> None:
    """Uses a recorder once: torch imports 1.4 s of modules (5 s on an H200's host) at the first use in a process."""
    with recording(True):
        torch.empty(1)
