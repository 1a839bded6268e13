"""The hall: benches, those who wait for them, and the journal in which each leaves what was found."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Final

from pydantic_evals import Case, set_eval_attribute
from pydantic_evals.lifecycle import CaseLifecycle
from pydantic_evals.reporting import ReportCase, ReportCaseFailure

from agentgen.errors import MachineFailure
from agentgen.scoring.benches import CLOSE_S, Bench, Rota
from agentgen.scoring.cases import About, Cases, Inputs, Subject
from agentgen.scoring.journal import Found, Journal, Visitor
from agentgen.scoring.verdicts import Verdict
from agentgen.threads import end

OnVerdict = Callable[[str, Verdict], None]
"""Told the name of a case and what became of it."""
OnFailure = Callable[[str, Exception], None]
"""Told the name of a case and why nothing became of it."""
SECONDS: Final = "seconds"
"""Attribute of a case: how long it had its bench."""
_HERE: ContextVar[Visitor] = ContextVar("_HERE")
"""Which case a task is about: pydantic-evals tells it the inputs alone, and two goes at a case have the same."""


def nothing(_name: str, _error: Exception) -> None:
    """Is done."""


class Hall:
    """The task of an evaluation, with `visit` as its lifecycle. All cases begin at once, and each waits in its setup,
    which is not in its time, until a bench takes it. What the journal knows takes none."""

    def __init__(
        self,
        benches: Sequence[Bench],
        cases: Cases,
        repeat: int,
        journal: Journal,
        on_verdict: OnVerdict,
        on_failure: OnFailure = nothing,
        limit_s: float | None = None,
    ) -> None:
        """Takes what is to be judged, and where; `limit_s` is how long a kernel may have its bench."""
        self._benches = benches
        self._journal = journal
        self._on_verdict = on_verdict
        self._on_failure = on_failure
        self._limit_s = limit_s
        goes = [
            journal.visitor(case.name or "", nth, case.inputs, repeat)
            for case in cases.cases
            for nth in range(1, repeat + 1)
        ]
        self._to_come: dict[str, deque[Visitor]] = defaultdict(deque)
        for case, visitor in zip((case for case in cases.cases for _ in range(repeat)), goes, strict=True):
            self._to_come[case.name or ""].append(visitor)
        self._rota = Rota([visitor for visitor in goes if not journal.known(visitor)])
        self._seats: dict[Visitor, asyncio.Future[Bench]] = {}
        self._interrupted = False
        self.machine = next(iter(journal.machines), None)

    async def judge(self, _: Inputs) -> Verdict:
        """Returns the verdict on the case that has its bench, or that was judged before.

        Raises:
            MachineFailure: the machine failed, or is another than that of the other benches.
        """
        visitor = _HERE.get()
        try:
            found = self._journal.known(visitor) or await self._found(visitor)
        except Exception as error:
            self._tell(partial(self._on_failure, visitor.name, error))
            raise
        set_eval_attribute(SECONDS, found.seconds)
        self._tell(partial(self._on_verdict, visitor.name, found.verdict))
        return found.verdict

    async def _found(self, visitor: Visitor) -> Found:
        bench = self._seats[visitor].result()
        begun = time.monotonic()
        future = asyncio.wrap_future(bench.hand.do(lambda: bench.take(visitor)))
        # A search keeps to the limit by itself: it has what it found until then.
        limit_s = self._limit_s if isinstance(visitor.inputs, Subject) else None
        try:
            done, _ = await asyncio.wait([future], timeout=limit_s)
        except asyncio.CancelledError:
            future.cancel()  # how it ends is of no interest any more
            raise
        if not done:
            bench.interrupt()
            await asyncio.wait([future])
            if future.exception():  # else the verdict came just then
                raise MachineFailure(f"no verdict within {limit_s:g} s")
        verdict, machine = future.result()
        if machine:
            self.machine = self.machine or machine
            if machine.id != self.machine.id:
                raise MachineFailure(f"{visitor.name} was judged on another kind of machine ({machine.device})")
        seconds = verdict.run.seconds if verdict.run else time.monotonic() - begun
        self._journal.keep(visitor, found := Found(verdict=verdict, machine=machine, seconds=seconds))
        return found

    def _tell(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        except KeyboardInterrupt:
            self._interrupted = True  # before this case gives its bench to the next
            raise

    def visit(self, case: Case[Inputs, Verdict, About]) -> CaseLifecycle[Inputs, Verdict, About]:
        """Returns what a case does before and after it is judged."""
        return _Visit(case, self, self._to_come[case.name or ""].popleft())

    async def enter(self, visitor: Visitor) -> None:
        """Waits for a bench, where one is needed."""
        _HERE.set(visitor)
        if self._journal.known(visitor):
            return
        if not self._seats:
            for bench in self._benches:
                self._give(bench)
        await self._seat(visitor)

    def leave(self, visitor: Visitor) -> None:
        """Gives its bench to the next."""
        seat = self._seats.get(visitor)
        if seat and seat.done() and not seat.cancelled():
            self._give(seat.result())

    def close(self) -> None:
        """Ends all judges, whatever they are doing."""
        for bench in self._benches:
            bench.stop()
        for bench in self._benches:
            bench.hand.do(bench.close)
        end((bench.hand for bench in self._benches), CLOSE_S)

    def _give(self, bench: Bench) -> None:
        visitor = None if self._interrupted else self._rota.next(bench.device)
        if visitor and not (seat := self._seat(visitor)).done():  # done: its case has been cancelled
            seat.set_result(bench)

    def _seat(self, visitor: Visitor) -> asyncio.Future[Bench]:
        return self._seats.setdefault(visitor, asyncio.get_running_loop().create_future())


class _Visit(CaseLifecycle[Inputs, Verdict, About]):
    """A case at its bench."""

    def __init__(self, case: Case[Inputs, Verdict, About], hall: Hall, visitor: Visitor) -> None:
        super().__init__(case)
        self._hall = hall
        self._visitor = visitor

    async def setup(self) -> None:
        """Waits for a bench."""
        await self._hall.enter(self._visitor)

    async def teardown(
        self, result: ReportCase[Inputs, Verdict, About] | ReportCaseFailure[Inputs, Verdict, About] | None
    ) -> None:
        """Leaves it."""
        self._hall.leave(self._visitor)
