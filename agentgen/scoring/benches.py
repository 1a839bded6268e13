"""Benches: a device each, at which cases are done, and who sits at which.

The cases of a problem stay at one bench, whose judge stays open for the next of them, as long as no other bench would
stand empty for that: opening a judge takes as long as judging several kernels. The next go at all cases begins when
none is left of the one before, with judges that are opened anew: goes then differ by all that evaluations differ by,
and their scatter says what is chance (docs/decisions/028-the-gate.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from agentgen.errors import JudgeDied, JudgeHangs, MachineFailure
from agentgen.records.candidate import Candidate
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Depth, Trial
from agentgen.scoring.cases import Solve, Subject, language_of
from agentgen.scoring.journal import Visitor
from agentgen.scoring.verdicts import Verdict
from agentgen.threads import Hand

CLOSE_S: Final = 7.0
"""A judge that does not end by itself is killed after 5 s."""
TRIES: Final = 3
"""Where the machine failed, a case is tried anew, by a judge that is opened anew. Not where that one hung: a reference
that never returned had a device for half an hour."""


class Judge(Protocol):
    """What is needed of a judge. All is called by one thread, except for `stop`."""

    def evaluate(self, candidate: Candidate, *, depth: Depth) -> Trial: ...

    def stop(self) -> None:
        """Ends the call under way, and lets no other begin."""
        ...


OpenJudge = Callable[[str, Path, Arithmetic | None], AbstractContextManager[Judge]]
"""The judge, on a device, of the problem in a folder, in an arithmetic or (None) the problem's own."""
SolveOne = Callable[[str, Visitor], tuple[Verdict, Machine | None]]
"""Solves the problem of a case on a device: returns what came of it, and the machine if a kernel was evaluated. Of the
same visitor, a run that was begun goes on."""
OnDevice = Callable[[str], None]


def nothing(_: str) -> None:
    """Is done."""


class Bench:
    """A device: keeps the judge of the last problem open for the next kernel. All but `stop` and `interrupt` is done by
    its `hand`."""

    def __init__(
        self,
        device: str,
        folder: Path,
        open_judge: OpenJudge,
        solve: SolveOne,
        at_end: OnDevice = nothing,
        stop_solving: OnDevice = nothing,
    ) -> None:
        """Takes a device, the folder that paths are relative to, and who does the work. `stop_solving` ends what
        `solve` does on a device; another thread calls it."""
        self.device = device
        self._at_end = at_end
        self._stop_solving = stop_solving
        self._stopped = False
        self._interrupted: Visitor | None = None
        self.hand = Hand(f"bench of {device}")
        self._folder = folder
        self._open = open_judge
        self._solve = solve
        self._here: Visitor | None = None
        self._open_for: tuple[Path, Arithmetic | None, int] | None = None
        """The problem, the arithmetic, and which go at its cases."""
        self._context: AbstractContextManager[Judge] | None = None
        self._judge: Judge | None = None

    def take(self, visitor: Visitor) -> tuple[Verdict, Machine | None]:
        """Returns what becomes of a case.

        Raises:
            MachineFailure: the machine failed, again and again, or the case was interrupted.
        """
        self._here = visitor
        for attempt in Retrying(
            retry=retry_if_exception(lambda error: _passes(error) and not self._ended(visitor)),
            stop=stop_after_attempt(TRIES),
            wait=wait_random_exponential(max=2.0),
            before_sleep=lambda _: self._leave_problem(),
            reraise=True,
        ):
            with attempt:
                return self._done(visitor)
        raise AssertionError("tenacity returns or raises")

    def _done(self, visitor: Visitor) -> tuple[Verdict, Machine | None]:
        inputs = visitor.inputs
        if self._ended(visitor):  # while it waited for another attempt
            raise JudgeDied("the judge was stopped")
        if isinstance(inputs, Solve):
            self._leave_problem()
            return self._solve(self.device, visitor)
        source = (self._folder / inputs.kernel).read_bytes().decode()  # line ends are hashed
        candidate = Candidate(source=source, language=language_of(inputs))
        trial = self._judge_of(inputs, visitor.nth).evaluate(candidate, depth=inputs.depth)
        return Verdict.of(trial), trial.machine

    def stop(self) -> None:
        """Ends what is being done, for good. For another thread."""
        self._stopped = True
        self._stop_solving(self.device)
        if judge := self._judge:
            judge.stop()

    def interrupt(self) -> None:
        """Ends what is being done for the present case alone. For another thread."""
        self._interrupted = self._here
        if judge := self._judge:
            judge.stop()

    def close(self) -> None:
        """Ends the judge that is open, and all that was got ready for the next."""
        self._leave_problem()
        self._at_end(self.device)

    def _ended(self, visitor: Visitor) -> bool:
        return self._stopped or self._interrupted is visitor

    def _leave_problem(self) -> None:
        if self._context:
            self._context.__exit__(None, None, None)
        self._context = self._judge = self._open_for = None

    def _judge_of(self, subject: Subject, nth: int) -> Judge:
        wanted = subject.problem, subject.arithmetic, nth
        # One that a stop has reached answers nobody any more.
        if self._judge is None or wanted != self._open_for or self._interrupted:
            self._interrupted = None if self._interrupted is not self._here else self._interrupted
            self._leave_problem()
            self._context = self._open(self.device, (self._folder / subject.problem).resolve(), subject.arithmetic)
            self._judge = self._context.__enter__()
            self._open_for = wanted
            if self._here and self._ended(self._here):  # `stop` has not seen this one
                self._judge.stop()
        return self._judge


def _passes(error: BaseException) -> bool:
    return isinstance(error, MachineFailure) and not isinstance(error, JudgeHangs)


class Rota:
    """Which case is done next, and where."""

    def __init__(self, visitors: Sequence[Visitor]) -> None:
        self._left = list(visitors)
        self._problems: dict[str, Path] = {}
        """Of each device, the problem whose judge is open there."""

    def next(self, device: str) -> Visitor | None:
        """Returns what a free device does, of the first go that is not over: of its own problem, else of one that no
        device has, else of the one that has the most left. None: nothing is left."""
        if not self._left:
            return None
        first = min(visitor.nth for visitor in self._left)
        left = [visitor for visitor in self._left if visitor.nth == first]
        problem = self._problems[device] = self._problem(device, left)
        chosen = next(visitor for visitor in left if visitor.inputs.problem == problem)
        self._left.remove(chosen)
        return chosen

    def _problem(self, device: str, visitors: Sequence[Visitor]) -> Path:
        left = Counter(visitor.inputs.problem for visitor in visitors)  # in the order they come
        own = self._problems.get(device)
        if own is not None and own in left:
            return own
        free = [problem for problem in left if problem not in self._problems.values()]
        return free[0] if free else max(left, key=left.__getitem__)
