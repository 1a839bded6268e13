"""Several devices of one machine: a judge each, and one queue of candidates for all.

Each judge has a thread of its own. A device that is free takes the next candidate, so that none waits while there is
work. What the judges say comes back in the thread that asked: the ledger and the display know of no other.

Not covered: building the next candidate ahead (which device will judge it is not known); devices of other machines.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from agentgen.errors import MachineFailure
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

    def evaluate(self, candidate: Candidate, on_stage: Callable[[str], None]) -> Trial: ...

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


@dataclass(frozen=True, slots=True)
class _Stage:
    """A judge began a stage."""

    candidate: str
    name: str


@dataclass(frozen=True, slots=True)
class _Ended:
    """A worker does no more for now."""

    failure: BaseException | None


_Told = SimpleQueue[_Stage | Trial | _Ended]


class Pool:
    """The judges of one problem on several devices of one kind; `close` leaves no process."""

    def __init__(self, judges: Mapping[str, Judge]) -> None:
        """Takes the judges over, each by the name of its device; the first one says what the target is."""
        self._workers = tuple(_Worker(device, judge, Hand(f"judge of {device}")) for device, judge in judges.items())
        self._first: tuple[str, Machine] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def target(self) -> Target:
        """Returns what the judge of the first device found out.

        Raises:
            MachineFailure: as the judge does.
            ReferenceInvalid: the problem's reference does not run.
        """
        first = self._workers[0]
        return first.hand.do(lambda: self._opened(first)).result()

    def evaluate_all(self, candidates: Sequence[Candidate], on_stage: Callable[[str, str], None]) -> Iterator[Trial]:
        """Yields a trial of each candidate, as they come. Once a device fails, no other candidate is begun.

        Args:
            candidates: What to evaluate.
            on_stage: Told candidate and stage as a stage begins, in the thread that iterates.

        Raises:
            MachineFailure: a device failed, or is another machine than the others; all that was begun elsewhere has
                been yielded.
        """
        waiting, told = deque(candidates), _Told()
        busy = self._workers[: len(waiting)]
        for worker in busy:
            worker.hand.do(lambda worker=worker: self._work(worker, waiting, told))
        left, failures = len(busy), list[BaseException]()
        try:
            while left:
                match told.get():
                    case _Stage(candidate, name):
                        on_stage(candidate, name)
                    case _Ended(failure):
                        left -= 1
                        failures += [failure] if failure else []
                    case trial:
                        yield trial
        finally:
            waiting.clear()  # nobody listens any more
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Ends all judges at once, whatever they are doing."""
        for worker in self._workers:
            worker.judge.stop()
        for worker in self._workers:
            worker.hand.do(worker.judge.close)
        end((worker.hand for worker in self._workers), CLOSE_S)

    def _work(self, worker: _Worker, waiting: deque[Candidate], told: _Told) -> None:
        """Takes candidates until none is left, in the worker's thread."""
        failure: BaseException | None = None
        try:
            while candidate := _next(waiting):
                # Only now: a judge that finds no work need not be opened.
                self._opened(worker)
                told.put(worker.judge.evaluate(candidate, lambda stage, one=candidate: told.put(_Stage(one.id, stage))))
        except BaseException as error:  # noqa: BLE001  (it is raised where the trials are waited for)
            waiting.clear()
            failure = error
        told.put(_Ended(failure))

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


def _next(waiting: deque[Candidate]) -> Candidate | None:
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _difference(one: Machine, other: Machine) -> str:
    """Returns the first thing in which two machines differ, in words."""
    theirs = other.model_dump()
    name, value = next((name, value) for name, value in one.model_dump().items() if theirs[name] != value)
    return f"{name.replace('_', ' ')} {value} and {theirs[name]}"
