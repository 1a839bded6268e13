"""Benches: a device each, at which a dataset's kernels are judged, and who sits at which.

The cases of a problem stay at one bench, whose judge stays open for the next of them, as long as no other bench would
stand empty for that: opening a judge takes as long as judging several kernels.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from pydantic_evals import Case
from pydantic_evals.lifecycle import CaseLifecycle
from pydantic_evals.reporting import ReportCase, ReportCaseFailure

from agentgen.errors import MachineFailure
from agentgen.records.candidate import Candidate
from agentgen.records.machine import Machine
from agentgen.records.trial import Depth, Trial
from agentgen.scoring.cases import About, Subject, Verdict, language_of
from agentgen.threads import Hand, end

CLOSE_S = 7.0
"""A judge that does not end by itself is killed after 5 s."""


class Judge(Protocol):
    """What is needed of a judge. All is called by one thread, except for `stop`."""

    def evaluate(self, candidate: Candidate, *, depth: Depth) -> Trial: ...

    def stop(self) -> None:
        """Ends the call under way, and lets no other begin."""
        ...


OpenJudge = Callable[[str, Path], AbstractContextManager[Judge]]
"""The judge, on a device, of the problem in a folder."""
OnVerdict = Callable[[Subject, Verdict], None]
OnDevice = Callable[[str], None]


def nothing(_: str) -> None:
    """Is done."""


class Bench:
    """A device: keeps the judge of the last problem open for the next kernel. All but `stop` is done by its `hand`."""

    def __init__(self, device: str, folder: Path, open_judge: OpenJudge, at_end: OnDevice = nothing) -> None:
        self.device = device
        self._at_end = at_end
        self._stopped = False
        self.hand = Hand(f"bench of {device}")
        self._folder = folder
        self._open = open_judge
        self._problem: Path | None = None
        self._context: AbstractContextManager[Judge] | None = None
        self._judge: Judge | None = None

    def judge(self, subject: Subject) -> Trial:
        """Returns the trial of one kernel. Only a failing machine raises."""
        source = (self._folder / subject.kernel).read_text(encoding="utf-8")
        candidate = Candidate(source=source, language=language_of(subject))
        return self._judge_of(subject.problem).evaluate(candidate, depth=subject.depth)

    def stop(self) -> None:
        """Ends what the judge is doing. For another thread."""
        self._stopped = True
        if judge := self._judge:
            judge.stop()

    def close(self) -> None:
        """Ends the judge that is open, and all that was got ready for the next."""
        self._leave_problem()
        self._at_end(self.device)

    def _leave_problem(self) -> None:
        if self._context:
            self._context.__exit__(None, None, None)
        self._context = self._judge = self._problem = None

    def _judge_of(self, problem: Path) -> Judge:
        if self._judge is None or problem != self._problem:
            self._leave_problem()
            self._context = self._open(self.device, (self._folder / problem).resolve())
            self._judge = self._context.__enter__()
            self._problem = problem
            if self._stopped:  # `stop` has not seen this one
                self._judge.stop()
        return self._judge


class Rota:
    """Which kernel is judged next, and where."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._left = list(subjects)
        self._problems: dict[str, Path] = {}
        """Of each device, the problem whose judge is open there."""

    def next(self, device: str) -> Subject | None:
        """Returns what a free device judges: of its own problem, else of one that no device has, else of the one that
        has the most left. None: nothing is left."""
        if not self._left:
            return None
        problem = self._problem(device)
        self._problems[device] = problem
        position = next(position for position, subject in enumerate(self._left) if subject.problem == problem)
        return self._left.pop(position)

    def _problem(self, device: str) -> Path:
        left = Counter(subject.problem for subject in self._left)  # in the order they come
        own = self._problems.get(device)
        if own is not None and own in left:
            return own
        free = [problem for problem in left if problem not in self._problems.values()]
        return free[0] if free else max(left, key=left.__getitem__)


class Hall:
    """The benches with those who wait for them: the task of an evaluation, with `visit` as its lifecycle. All cases
    begin at once, and each waits in its setup, which is not in its time, until a bench takes it."""

    def __init__(self, benches: Sequence[Bench], subjects: Sequence[Subject], on_verdict: OnVerdict) -> None:
        self._benches = benches
        self._rota = Rota(subjects)
        self._on_verdict = on_verdict
        self._seats: dict[int, asyncio.Future[Bench]] = {}
        """By the identity of the subject: two cases may have the same."""
        self._interrupted = False
        self.machine: Machine | None = None

    async def judge(self, subject: Subject) -> Verdict:
        """Returns the verdict on one kernel that has its bench.

        Raises:
            MachineFailure: the machine failed, or is another than that of the other benches.
        """
        bench = self._seats[id(subject)].result()
        trial = await asyncio.wrap_future(bench.hand.do(lambda: bench.judge(subject)))
        self.machine = self.machine or trial.machine
        if trial.machine.id != self.machine.id:
            raise MachineFailure(f"{bench.device} is another kind of machine than where the evaluation began")
        verdict = Verdict.of(trial)
        try:
            self._on_verdict(subject, verdict)
        except KeyboardInterrupt:
            self._interrupted = True  # before this case gives its bench to the next
            raise
        return verdict

    def visit(self, case: Case[Subject, Verdict, About]) -> CaseLifecycle[Subject, Verdict, About]:
        """Returns what a case does before and after it is judged."""
        return _Visit(case, self)

    async def enter(self, subject: Subject) -> None:
        """Waits for a bench."""
        if not self._seats:
            for bench in self._benches:
                self._give(bench)
        await self._seat(subject)

    def leave(self, subject: Subject) -> None:
        """Gives its bench to the next."""
        seat = self._seats[id(subject)]
        if seat.done() and not seat.cancelled():
            self._give(seat.result())

    def close(self) -> None:
        """Ends all judges, whatever they are doing."""
        for bench in self._benches:
            bench.stop()
        for bench in self._benches:
            bench.hand.do(bench.close)
        end((bench.hand for bench in self._benches), CLOSE_S)

    def _give(self, bench: Bench) -> None:
        subject = None if self._interrupted else self._rota.next(bench.device)
        if subject and not (seat := self._seat(subject)).done():  # done: its case has been cancelled
            seat.set_result(bench)

    def _seat(self, subject: Subject) -> asyncio.Future[Bench]:
        return self._seats.setdefault(id(subject), asyncio.get_running_loop().create_future())


class _Visit(CaseLifecycle[Subject, Verdict, About]):
    """A case at its bench."""

    def __init__(self, case: Case[Subject, Verdict, About], hall: Hall) -> None:
        super().__init__(case)
        self._hall = hall

    async def setup(self) -> None:
        """Waits for a bench."""
        await self._hall.enter(self.case.inputs)

    async def teardown(
        self, result: ReportCase[Subject, Verdict, About] | ReportCaseFailure[Subject, Verdict, About] | None
    ) -> None:
        """Leaves it."""
        self._hall.leave(self.case.inputs)
