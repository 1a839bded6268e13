"""Which ATen operators a call dispatches: by them the judge sees work that torch does for the candidate.

A mode of torch's dispatcher sees every operator called from Python or from C++ (`at::matmul` in an extension too).
Not covered: libraries called past the dispatcher (cuBLAS through ctypes), and a candidate that leaves the mode.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}
        self.returned: dict[str, int] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else the first use imports torch._dynamo: 1.4 s, 5 s on an H200's host.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func)
        self.calls[name] = self.calls.get(name, 0) + 1
        answer = func(*args, **(kwargs or {}))
        if isinstance(answer, torch.Tensor):
            self.returned[name] = self.returned.get(name, 0) + answer.nbytes
        return answer


@contextmanager
def recording(record: bool) -> Generator[tuple[dict[str, int], dict[str, int]]]:
    """Yields two dicts that fill while the block runs, by operator: calls, and bytes of the tensors that were returned.
    They stay empty if not `record`."""
    recorder = _Recorder()
    with recorder if record else nullcontext():
        yield recorder.calls, recorder.returned


def warm_up() -> None:
    """Uses a recorder once, for what torch imports at the first use in a process."""
    with recording(True):
        torch.empty(1)
