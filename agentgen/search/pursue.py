"""The way of one idea in one language: code, trial, repairs; then, where that came to nothing, another implementation.

    written -> evaluated -> repaired (plan.repairs times at most) -> written anew (plan.rewrites times) -> abandoned

The idea itself survives all of it: its other language goes its own way, and what became of it is told to the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentgen.records import events
from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatRequest
from agentgen.records.idea import Idea
from agentgen.records.machine import Target
from agentgen.search.ask import Asker, Missing
from agentgen.search.caps import Budget
from agentgen.search.judging import Judging
from agentgen.search.replies import parse_source
from agentgen.search.strategies import Growth
from agentgen.search.tree import Node, Tree
from agentgen.search.write import refine_request, refined, repair_request, repaired, write_request, written


@dataclass(frozen=True)
class Round:
    """A round, and what it may know."""

    number: int
    before: Tree
    """What earlier rounds made."""
    best: Mapping[Language, Node | None]
    """The best kernel of earlier rounds in each language."""
    target: Target


class Way:
    """Pursues ideas of one round."""

    def __init__(self, round: Round, tree: Tree, asker: Asker, budget: Budget, judging: Judging) -> None:
        """Takes the round, the whole tree, and who asks and evaluates."""
        self._round = round
        self._tree = tree
        self._asker = asker
        self._budget = budget
        self._judging = judging

    async def idea(self, idea: Idea, language: Language) -> None:
        """Implements an idea, until an implementation passes or none is left to try."""
        failed: tuple[str, ...] = ()
        for nth in range(self._round.before.run.plan.rewrites + 1):
            request = write_request(
                self._round.before,
                self._round.target,
                idea,
                language,
                self._round.number,
                self._round.best[language],
                failed,
                nth,
            )
            source = await self._source(request)
            if isinstance(source, Missing):
                return
            candidate = written(self._tree, idea, language, source)
            if candidate.id in failed:
                self._end_as_known(request, candidate)
                return
            more = await self._until_it_passes(candidate)
            if more is None:
                return
            failed += more

    async def program(self, growth: Growth) -> bool:
        """Has a faster program written without an idea in words; returns whether that may lead somewhere."""
        request = refine_request(self._round.before, self._round.target, growth, self._round.number)
        source = await self._source(request)
        if isinstance(source, Missing):
            return source is not Missing.ENDED
        candidate = refined(self._tree, growth, source)
        earlier = self._tree.node(candidate.id)
        if earlier and (earlier.round, earlier.candidate) != (self._round.number, candidate):
            self._end_as_known(request, candidate)
            return False
        await self._until_it_passes(candidate)
        return True

    async def _until_it_passes(self, candidate: Candidate) -> tuple[str, ...] | None:
        """Evaluates a candidate and repairs it; returns those that failed if all did, None if one passed or nothing
        can be said yet."""
        failed: tuple[str, ...] = ()
        for left in reversed(range(self._round.before.run.plan.repairs + 1)):
            node = await self._found(candidate)
            if node.score is None or not node.score.failed:
                return None
            failed += (candidate.id,)
            if not left:
                break
            request = repair_request(self._tree, self._round.target, node)
            source = await self._source(request)
            if isinstance(source, Missing):
                return failed if source is Missing.ENDED else None
            candidate = repaired(candidate, source)
            if candidate.id in failed:
                self._end_as_known(request, candidate)
                break
        return failed

    def _end_as_known(self, request: ChatRequest, candidate: Candidate) -> None:
        self._asker.end(request, f"the answer is the source that was evaluated as {candidate.id}")

    async def _source(self, request: ChatRequest) -> str | Missing:
        return await self._asker.ask(request, parse_source, events.SourceAsked(self._round.number, request))

    async def _found(self, candidate: Candidate) -> Node:
        """Returns a candidate as it stands after its evaluation, or where that could not be."""
        self._tree.add_candidate(self._round.number, candidate)
        self._budget.kept(candidate.id)
        return await self._judging.found(self._round.number, candidate)
