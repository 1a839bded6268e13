"""The judges of one problem, on one device or several of one machine: a judge each, and one queue of candidates.

Each judge has a thread of its own. A device that is free takes the next candidate, so that none waits while there is
work. What a judge says goes to the event loop of whoever asked: the ledger and the display know of no other thread.

Not covered: building the next candidate ahead with several devices (which of them will judge it is not known); devices
of other machines.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from agentgen.errors import JudgeDied, MachineFailure
from agentgen.records.candidate import Candidate
from agentgen.records.machine import Machine, Target
from agentgen.records.trial import Trial
from agentgen.threads import Hand, end

CLOSE_S = 7.0
"""A judge that does not end by itself is killed after 5 s. One that waits for its turn is left behind: a program that
it starts when that comes is ended at once."""


class Judge(Protocol):
    """What is needed of the judge of one device. All is called by one thread, except for `stop`."""

    def target(self) -> Target: ...

    def evaluate(
        self, candidate: Candidate, on_stage: Callable[[str], None], *, then: Candidate | None = None
    ) -> Trial:
        """Returns the trial of a candidate; the one that comes `then` may be built meanwhile."""
        ...

    def stop(self) -> None:
        """Ends the call under way, and lets no other begin."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Worker:
    """A device with its judge and thread."""

    device: str
    judge: Judge
    hand: Hand


_Said = str | Trial | BaseException
"""A stage that begins, or how it ended."""


@dataclass(eq=False, frozen=True, slots=True)
class _Job:
    """A candidate, and where its trial is waited for."""

    candidate: Candidate
    loop: asyncio.AbstractEventLoop
    said: asyncio.Queue[_Said] = field(default_factory=asyncio.Queue[_Said])

    def say(self, what: _Said) -> None:
        """Tells who waits, from any thread."""
        with suppress(RuntimeError):  # the event loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self.said.put_nowait, what)


class Pool:
    """The judges of one problem on one device, or on several of one kind; `close` leaves no process.

    For one event loop at a time, and any number of them one after the other.
    """

    def __init__(self, judges: Mapping[str, Judge]) -> None:
        """Takes the judges over, each by the name of its device; the first one says what the target is."""
        self._workers = tuple(_Worker(device, judge, Hand(f"judge of {device}")) for device, judge in judges.items())
        self._lock = threading.Lock()  # for all below
        self._first: tuple[str, Machine] | None = None
        self._wanted: set[_Job] = set()  # those that wait, and those under way that somebody waits for
        self._waiting: deque[_Job] = deque()  # empty while a device is free
        self._busy: set[str] = set()  # devices that have a job
        self._closed = False

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def target(self) -> Target:
        """Returns what the judge of the first device found out, once that has judged what it is judging.

        Raises:
            MachineFailure: as the judge does, among them DeviceNotFound; JudgeDied once the pool is closed.
            ReferenceInvalid: the problem's reference does not run.
        """
        first = self._workers[0]
        with self._lock:
            self._require_open()
            found = first.hand.do(lambda: self._opened(first))
        return await asyncio.wrap_future(found)

    async def evaluate(self, candidate: Candidate, on_stage: Callable[[str], None]) -> Trial:
        """Returns the trial of a candidate. Candidates are begun in the order of these calls.

        One that is cancelled while it waits is not judged. One that is cancelled later ends at once for the caller; its
        judge goes on with it until it is done or the pool is closed.

        Args:
            candidate: What to evaluate.
            on_stage: Told each stage as it begins, in the thread of the event loop; what it raises is raised here.

        Raises:
            MachineFailure: this device failed, or another while this one waited, or is another machine than the others;
                JudgeDied once the pool is closed. What was begun elsewhere comes to its end; what is asked for later is
                begun.
            ReferenceInvalid: as `target`, where the judge had yet to be opened.
        """
        job = _Job(candidate, asyncio.get_running_loop())
        self._add(job)
        try:
            while isinstance(said := await job.said.get(), str):
                on_stage(said)
        finally:
            self._drop(job)
        if isinstance(said, BaseException):
            raise said
        return said

    def close(self) -> None:
        """Ends all judges at once, whatever they are doing; who still waits for a trial is told so."""
        with self._lock:
            self._closed = True
            wanted = tuple(self._wanted)
            self._wanted.clear()
            self._waiting.clear()
        for job in wanted:
            job.say(_closed())
        for worker in self._workers:
            worker.judge.stop()
        for worker in self._workers:
            worker.hand.do(worker.judge.close)
        end((worker.hand for worker in self._workers), CLOSE_S)

    def _add(self, job: _Job) -> None:
        """Gives a job to the first device that has none, or has it wait."""
        with self._lock:
            self._require_open()
            self._wanted.add(job)
            if free := next((worker for worker in self._workers if worker.device not in self._busy), None):
                self._give(free, job)
            else:
                self._waiting.append(job)

    def _drop(self, job: _Job) -> None:
        """Nobody waits for this one any more."""
        with self._lock:
            self._wanted.discard(job)
            if job in self._waiting:
                self._waiting.remove(job)

    def _give(self, worker: _Worker, job: _Job) -> None:
        self._busy.add(worker.device)
        worker.hand.do(lambda: self._work(worker, job))

    def _work(self, worker: _Worker, job: _Job) -> None:
        """Has a job done, in the worker's thread, and tells how it ended."""
        failed: tuple[_Job, ...] = ()
        try:
            if len(self._workers) > 1:  # one alone is compared with none, and tells of its stages as it opens
                self._opened(worker)
            wanted, then = self._about(job)
            # What is not wanted is told to nobody.
            said = worker.judge.evaluate(job.candidate, job.say, then=then) if wanted else _closed()
        except BaseException as error:  # noqa: BLE001  (it is raised where the trials are waited for)
            said, failed = error, self._emptied()
        self._go_on(worker)  # before anybody is told: who then asks for another finds this device free
        for one in (job, *failed):
            one.say(said)

    def _about(self, job: _Job) -> tuple[bool, Candidate | None]:
        """Returns whether somebody still waits for a job, and what to build ahead meanwhile."""
        with self._lock:
            ahead = self._waiting[0].candidate if self._waiting and len(self._workers) == 1 else None
            return job in self._wanted, ahead

    def _emptied(self) -> tuple[_Job, ...]:
        """Returns all that waited, which is not to be begun."""
        with self._lock:
            jobs = tuple(self._waiting)
            self._waiting.clear()
        return jobs

    def _go_on(self, worker: _Worker) -> None:
        """Gives a worker the job that waits longest, to be done after what its thread was asked meanwhile; without one
        it is free."""
        with self._lock:
            if self._waiting:
                self._give(worker, self._waiting.popleft())
            else:
                self._busy.remove(worker.device)

    def _require_open(self) -> None:
        if self._closed:
            raise _closed()

    def _opened(self, worker: _Worker) -> Target:
        """Returns a worker's target.

        Raises:
            MachineFailure: it is another machine than that of the device which was opened first.
        """
        target = worker.judge.target()
        with self._lock:
            self._first = self._first or (worker.device, target.machine)
        device, machine = self._first
        if target.machine.id != machine.id:
            raise MachineFailure(
                f"{worker.device} and {device} are not of one kind: {_difference(target.machine, machine)}; "
                "times are compared on one kind of machine only: give devices of one"
            )
        return target


def _closed() -> JudgeDied:
    return JudgeDied("the judges were stopped")


def _difference(one: Machine, other: Machine) -> str:
    """Returns the first thing in which two machines differ, in words."""
    theirs = other.model_dump()
    name, value = next((name, value) for name, value in one.model_dump().items() if theirs[name] != value)
    return f"{name.replace('_', ' ')} {value} and {theirs[name]}"
