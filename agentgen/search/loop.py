"""The search: rounds that grow from the best of all before them.

A round asks for ideas on what its strategy chose (`strategies`), and each idea goes its own way beside the others
(`pursue`): code, trial, repairs, another implementation. So ideas, code, builds and timing overlap. A round begins when
nothing of the one before is open, and sees only what earlier rounds made.

Derived from the store: every step is committed before the next begins, and a walk begins with the first round that is
not settled, skipping what is stored. So a killed, stopped or waiting run goes on by calling `run_search` again.

It ends when the plan is done, where more would find little (`enough`), or where nothing is left to grow from. A cap of
the run (`caps`) stops the asking, nothing else: what is written is evaluated, then the run is STOPPED. It is not DONE,
for its plan is not, and a higher cap lets it go on where it was. Likewise where a model or the machine fails: what is
under way comes to its end, and is kept.

Not covered: two processes on one run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from agentgen.errors import StoreUnavailable
from agentgen.models.roster import Roster
from agentgen.records import events
from agentgen.records.chat import Role
from agentgen.records.idea import Idea
from agentgen.records.machine import Target
from agentgen.records.run import Capped, Run, RunStatus
from agentgen.search import event_loop
from agentgen.search.ask import Asker, Missing
from agentgen.search.caps import Budget
from agentgen.search.enough import enough
from agentgen.search.halt import Halt
from agentgen.search.ideas import ideas_request
from agentgen.search.judging import Judge, Judging
from agentgen.search.known import known_as
from agentgen.search.pursue import Round, Way
from agentgen.search.replies import parse_ideas
from agentgen.search.select import leader
from agentgen.search.strategies import PERSISTENT, STRATEGIES, Growth
from agentgen.search.tree import Tree
from agentgen.store.ledger import Ledger


@dataclass(frozen=True)
class SearchResult:
    """Where a search stands when it returns."""

    status: RunStatus
    answers: int = 0
    """Model answers that are waited for."""
    evaluations: int = 0
    """Candidates that wait for their device."""
    capped: Capped | None = None
    """Why models were asked no further, if a cap is why."""


def run_search(
    run: Run,
    ledger: Ledger,
    roster: Roster,
    judge: Judge,
    watch: Callable[[events.Event], None],
    elapsed_s: Callable[[], float] | None = None,
    won: str = "",
) -> SearchResult:
    """Searches until the plan is done, no branch is left, a cap stops it, or nothing can advance; resumes what is
    stored of `run`.

    Args:
        run: as the ledger holds it.
        ledger: where everything is kept.
        roster: the models.
        judge: evaluates on the run's device.
        watch: told what happens, for a display.
        elapsed_s: returns the seconds that count for the cap on minutes; None: those since this call.
        won: ideas that won on related problems, a line each, for the requests.

    Raises:
        ModelUnavailable: a model gave up; the run is STOPPED and can be resumed.
        MachineFailure: the machine failed, or the device is away and was never looked at; STOPPED.
        KeyboardInterrupt: by the user; STOPPED.
    """
    start_s = time.monotonic()
    ledger.set_status(run.id, RunStatus.OPEN)
    try:
        budget = Budget(run, ledger, roster, elapsed_s or (lambda: time.monotonic() - start_s))
        result = event_loop.run(partial(_search, run, ledger, roster, budget, judge, watch, won))
        ledger.set_status(run.id, result.status)
    except BaseException:
        with suppress(StoreUnavailable):
            ledger.set_status(run.id, RunStatus.STOPPED)
        watch(events.RunEnded(RunStatus.STOPPED))
        raise
    if result.status is RunStatus.WAITING:
        watch(events.RunWaiting(result.answers, result.evaluations))
    watch(events.RunEnded(result.status))
    return result


def evaluate_pending(run: Run, ledger: Ledger, judge: Judge, watch: Callable[[events.Event], None]) -> int:
    """Evaluates the candidates of `run` that have no trial, asks no model, and returns how many they were.

    Raises:
        MachineFailure: the machine failed, or has not the run's device.
    """

    async def pending() -> int:
        if run.target is None:
            await _looked_at(run, ledger, judge, watch)
        tree = Tree.read(ledger, run)
        halt = Halt()
        judging = Judging(tree, judge, halt, watch)
        waiting = [node for node in tree.nodes if node.score is None]
        rounds = sorted({node.round for node in waiting})
        if told := [events.IdeaProposed(number, idea) for number in rounds for idea in tree.ideas_of(number)]:
            watch(events.Recalled(tuple(told)))  # whose code it is
        async with asyncio.TaskGroup() as group:
            for node in waiting:
                group.create_task(judging.found(node.round, node.candidate))
        if failure := halt.failure or judging.away:
            raise failure
        return len(waiting)

    try:
        count = event_loop.run(pending)
    except BaseException:
        watch(events.RunEnded(RunStatus.STOPPED))
        raise
    watch(events.RunEnded(RunStatus.WAITING))
    return count


async def _search(
    run: Run,
    ledger: Ledger,
    roster: Roster,
    budget: Budget,
    judge: Judge,
    watch: Callable[[events.Event], None],
    won: str,
) -> SearchResult:
    """Looks at the device if nobody did, and walks."""
    if used := budget.used():
        watch(used)
    target = run.target or await _looked_at(run, ledger, judge, watch)
    halt, tree = Halt(), Tree.read(ledger, run)
    asker = Asker(run.id, ledger, roster, budget, halt, watch)
    judging = Judging(tree, judge, halt, watch)
    return await _Walk(tree, ledger, target, asker, budget, judging, halt, watch, won).advance()


async def _looked_at(run: Run, ledger: Ledger, judge: Judge, watch: Callable[[events.Event], None]) -> Target:
    """Starts the judge, and keeps what it finds out about the problem on this device."""
    watch(events.JudgeStarting())
    target = await judge.target()
    ledger.set_target(run.id, target)
    watch(events.JudgeReady())
    return target


class _Walk:
    """One walk through the rounds."""

    def __init__(
        self,
        tree: Tree,
        ledger: Ledger,
        target: Target,
        asker: Asker,
        budget: Budget,
        judging: Judging,
        halt: Halt,
        watch: Callable[[events.Event], None],
        won: str,
    ) -> None:
        self._tree = tree
        self._ledger = ledger
        self._target = target
        self._asker = asker
        self._budget = budget
        self._judging = judging
        self._halt = halt
        self._watch = watch
        self._won = won
        self._past: list[Growth] = []
        """What the rounds so far grew from."""

    async def advance(self) -> SearchResult:
        """Walks through the rounds, as far as it gets."""
        run, settled = self._tree.run, self._settled()
        self._recall(settled)
        for number in range(settled + 1, run.plan.rounds + 1):
            before = self._tree.before(number)
            if reason := enough(before, self._target):
                self._watch(events.Enough(reason))
                break
            self._watch(events.RoundStarted(number))
            grown = await self._grow(self._round(number, before))
            if self._halt.failure:
                raise self._halt.failure
            if self._asker.pending or self._judging.waiting:
                waiting = self._asker.pending, self._judging.waiting
                return SearchResult(RunStatus.WAITING, *waiting, self._budget.capped)
            if self._budget.capped:
                return SearchResult(RunStatus.STOPPED, capped=self._budget.capped)
            if not grown:  # not settled: another walk finds the same, and does not ask on
                break
            self._ledger.set_settled(run.id, number)
        return SearchResult(RunStatus.DONE)

    def _settled(self) -> int:
        """Returns how many rounds need not be walked through: none of a run whose requests do not tell their round, and
        none from one on that has a candidate without a trial, as a merge with another machine's copy may leave it."""
        run = self._tree.run
        if any(not letter.round for letter in self._ledger.letters(run.id, Role.IDEAS, Role.REFINE)):
            return 0
        open_rounds = (node.round for node in self._tree.nodes if node.score is None)
        return min([run.settled, *(number - 1 for number in open_rounds)]) if run.settled else 0

    def _recall(self, settled: int) -> None:
        """Tells what the settled rounds made, and finds out what they grew from."""
        for letter in self._ledger.letters(self._tree.run.id, Role.IDEAS, Role.REFINE) if settled else ():
            if not letter.attempt and letter.round <= settled:
                parent = letter.parent if self._tree.node(letter.parent) else None
                self._past.append(Growth(parent, letter.nth, 0))
        told: list[events.One] = []
        for number in range(1, settled + 1):
            told.append(events.RoundStarted(number))
            told += [events.IdeaProposed(number, idea) for idea in self._tree.ideas_of(number)]
            for node in self._tree.of_round(number):
                told.append(events.CandidateWritten(number, node.candidate))
                told += [events.TrialDone(number, node.score)] if node.score else []
        if told:
            self._watch(events.Recalled(tuple(told)))

    def _round(self, number: int, before: Tree) -> Round:
        languages = before.run.languages
        best = {one: leader(node for node in before.nodes if node.candidate.language is one) for one in languages}
        return Round(number, before, best, self._target)

    async def _grow(self, round: Round) -> bool:
        """Grows a round to its end; returns whether anything led anywhere."""
        choose = STRATEGIES[self._tree.run.plan.strategy]
        done: dict[Growth, bool] = {}
        async with asyncio.TaskGroup() as ways:
            # What leads nowhere makes room for the next best at once, while the ideas of others are pursued.
            while new := [
                growth
                for growth in choose(round.before, self._past, [one for one, alive in done.items() if not alive])
                if growth not in done
            ]:
                async with asyncio.TaskGroup() as asked:
                    for growth in new:
                        asked.create_task(self._ask(round, growth, done, ways))
        self._past += done
        return any(done.values()) or self._tree.run.plan.strategy in PERSISTENT

    async def _ask(self, round: Round, growth: Growth, done: dict[Growth, bool], ways: asyncio.TaskGroup) -> None:
        """Asks for what a growth begins with, and sends the ideas on their ways; notes whether it leads anywhere."""
        way = Way(round, self._tree, self._asker, self._budget, self._judging)
        if not growth.ideas:
            done[growth] = await way.program(growth)
            return
        ideas = await self._ideas(round, growth)
        done[growth] = ideas is not Missing.ENDED
        for idea in ideas if not isinstance(ideas, Missing) else ():
            self._tree.add_idea(round.number, idea)
            self._watch(events.IdeaProposed(round.number, idea))
            for language in round.before.run.languages if idea.same_as is None else ():
                ways.create_task(way.idea(idea, language))

    async def _ideas(self, round: Round, growth: Growth) -> Sequence[Idea] | Missing:
        """Returns the ideas on a parent, those marked that repeat a known one."""
        request = ideas_request(round.before, self._target, growth, round.number, self._won)
        parse = partial(parse_ideas, parent=request.parent, count=growth.ideas)
        found = await self._asker.ask(request, parse, events.IdeasAsked(round.number, request))
        if isinstance(found, Missing):
            return found
        ideas: list[Idea] = []
        for idea in found:
            stored = self._tree.idea_of(round.number, idea.id)
            known = known_as(idea, round.before, round.before.node(growth.parent), ideas)
            # What was decided once holds: there may be code of it.
            ideas.append(stored or (idea.model_copy(update={"same_as": known.id}) if known else idea))
        return ideas
