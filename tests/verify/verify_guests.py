"""A guest in a thread of this process, over a real socket: for candidates that neither crash nor change the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.sandbox.guest.serve import serve
from agentgen.sandbox.kin import Kin, Stopped
from agentgen.sandbox.wire import Channel, pair
from agentgen.verify.reference import load
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session

LIVING: set[int] = set()
STARTED: list[int] = []
"""For references that find no memory while, or once, a guest lives."""

TORCH_CONV = """
import random
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.conv = nn.Conv2d(*args)
        with torch.no_grad():
            self.conv.weight.uniform_(0.05, 0.2)
            self.conv.bias.uniform_(0.5, 1.0)
        self.kept = {{}}
        self.calls = 0

    def answer(self, x, weight=None):
        return torch.conv2d(x, self.conv.weight if weight is None else weight, self.conv.bias)

    def forward(self, x):
        self.calls += 1
        {forward}
{more}
"""


class GuestHere:
    """Serves as a guest process does, without being one: `log` is empty and nothing ends it but `kill`."""

    pid = os.getpid()
    exit_status = None
    starved = None
    log = ""

    def __init__(self) -> None:
        self._channel, theirs = pair()
        self.scratch = Path.cwd()
        self._thread = threading.Thread(target=serve, args=(Channel(theirs), "cpu", None), daemon=True)
        self._thread.start()
        LIVING.add(id(self))
        STARTED.append(id(self))

    def post(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        self._channel.send(message, fds)

    def answer(self, timeout_s: float) -> dict[str, Any]:
        return self._channel.receive(timeout_s)[0]

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stopped(self) -> Stopped:
        return Stopped()

    def kin(self) -> Kin:
        return Kin()

    def samples(self) -> None:
        return None

    def forget_samples(self) -> None: ...

    def kill(self) -> None:
        self._channel.close()
        self._thread.join(10)
        LIVING.discard(id(self))


def torch_conv(forward: str = "return self.answer(x)", more: str = "") -> str:
    """Returns a candidate that has torch compute `small_conv`.

    Args:
        forward: Body of `forward(self, x)`.
        more: Further methods, indented by four.
    """
    return TORCH_CONV.format(forward=forward.strip().replace("\n", "\n" + 8 * " "), more=more)


@contextmanager
def rig_of(problem: Problem, workload: Workload | None = None) -> Generator[Rig]:
    """Yields a rig at a workload (default: `main`) with inputs that are not timed."""
    rig = Rig(load(problem, workload or problem.main, "cpu"), "cpu", 0, rotate=False)
    yield rig
    rig.close()


@contextmanager
def session_at(rig: Rig, source: str, weights: bool = True) -> Generator[Session]:
    """Yields a session with a candidate, built at a rig, with weights. The working folder is written to."""
    session = Session(GuestHere(), None)
    try:
        session.load(Candidate(source=source, language=Language.CPP), Arithmetic.FP32)
        session.construct(rig)
        if weights:
            rig.draw_weights()
            session.set_weights(rig)
        yield session
    finally:
        session.close()
