"""Judges that are plain classes, what they judge, and a pool of them that is asked from an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial

import made_records

from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Target
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome, Trial
from agentgen.workers.pool import Pool

PATIENCE_S = 20.0
"""Far beyond what anything here takes: a test that waits so long has failed."""
CANDIDATES = tuple(Candidate(source=f"# {number}", language=Language.CPP) for number in range(8))
IDS = [candidate.id for candidate in CANDIDATES]


def target(device: str = "NVIDIA H200") -> Target:
    return made_records.target(made_records.problem("linear"), made_records.gpu(device))


def trial_of(candidate: Candidate) -> Trial:
    return Trial(
        candidate=candidate.id,
        problem="linear",
        arithmetic=Arithmetic.FP32,
        machine=made_records.gpu(),
        outcome=Outcome.CRASHED,
        reasons=("so",),
    )


Work = Callable[["Fake", Candidate], None]


def nothing(_judge: Fake, _candidate: Candidate) -> None:
    """Takes no time."""


class Fake:
    """A judge that does what it is told to, and remembers what it judged, and in which threads it was used."""

    def __init__(self, work: Work = nothing, found: Target | None = None) -> None:
        self._work = work
        self._found = found or target()
        self.begun: list[str] = []
        self.judged: list[str] = []
        self.ahead: list[str | None] = []
        """What each was said to be followed by."""
        self.threads: set[int] = set()
        self.stopped = threading.Event()
        self.opened = threading.Event()
        self.closed = False

    def target(self) -> Target:
        self.threads.add(threading.get_ident())
        self.opened.set()
        return self._found

    def evaluate(
        self, candidate: Candidate, on_stage: Callable[[str], None], *, then: Candidate | None = None
    ) -> Trial:
        self.threads.add(threading.get_ident())
        assert not self.stopped.is_set()
        self.begun.append(candidate.id)
        self.ahead.append(then.id if then else None)
        on_stage("build")
        self._work(self, candidate)
        on_stage("time")
        self.judged.append(candidate.id)
        return trial_of(candidate)

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed = True


class Gate:
    """Work that tells that it has begun, and goes on only when it may."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.let = threading.Semaphore(0)

    def __call__(self, _judge: Fake, _candidate: Candidate) -> None:
        self.reached.release()
        assert self.let.acquire(timeout=PATIENCE_S), "nobody let it go on"

    async def wait(self) -> None:
        """Returns when somebody has begun. The event loop goes on meanwhile."""
        assert await asyncio.to_thread(self.reached.acquire, timeout=PATIENCE_S), "nobody has begun"


def pool_of(*judges: Fake) -> Pool:
    return Pool({f"cuda:{number}": judge for number, judge in enumerate(judges)})


OnStage = Callable[[str, str], None]


def ignore(_candidate: str, _stage: str) -> None: ...


async def ask(pool: Pool, candidates: Sequence[Candidate], on_stage: OnStage = ignore) -> list[Trial | BaseException]:
    """Returns what came of each candidate, all of which are asked for at once."""
    asked = (pool.evaluate(candidate, partial(on_stage, candidate.id)) for candidate in candidates)
    return await asyncio.gather(*asked, return_exceptions=True)


def judged(pool: Pool, candidates: Sequence[Candidate], on_stage: OnStage = ignore) -> list[Trial | BaseException]:
    """Returns what came of each candidate, in an event loop of its own."""
    return asyncio.run(ask(pool, candidates, on_stage))


def trials_of(candidates: Sequence[Candidate]) -> list[Trial]:
    return [trial_of(candidate) for candidate in candidates]
