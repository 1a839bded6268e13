"""Tree: ideas, candidates and scores of one run. Append-only; read from the ledger once, then grown with it.

Seen from a round (`before`) it holds what the rounds before it made. What a round asks for depends on that alone, so a
round that is resumed halfway asks for the same as at its start, however many things went on at the same time.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from agentgen.records.candidate import Candidate
from agentgen.records.idea import Idea
from agentgen.records.run import Run
from agentgen.records.score import Score
from agentgen.records.trial import Trial
from agentgen.store.ledger import Ledger
from agentgen.store.rows import IdeaRow

_TRIALS: Final = 16


@dataclass(frozen=True, slots=True)
class Node:
    """A candidate with what is known of it."""

    round: int
    candidate: Candidate
    score: Score | None
    """None until it was evaluated."""


@dataclass
class _Grown:
    """What all views of one tree share."""

    ledger: Ledger
    trial: Callable[[str, str], Trial | None]
    """By run and candidate. Of the last few that were asked for: a parent's is told with each idea on it."""
    ideas: dict[str, IdeaRow] = field(default_factory=dict[str, IdeaRow])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    ideas_of_round: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict[int, list[str]](list))
    nodes_of_round: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict[int, list[str]](list))
    attempts: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))
    ideas_on: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))


class Tree:
    """One run, whole or as far as the rounds before one made it."""

    def __init__(self, run: Run, grown: _Grown, end: int | None = None) -> None:
        """A view on what has grown; see `read` and `before`."""
        self.run = run
        self._grown = grown
        self._end = end

    @classmethod
    def read(cls, ledger: Ledger, run: Run) -> Tree:
        """Returns the run as it is stored now."""
        tree = cls(run, _Grown(ledger, lru_cache(_TRIALS)(ledger.trial)))
        for row in ledger.ideas(run.id):
            tree._place_idea(row)
        scores = {score.candidate: score for score in ledger.scores(run.id)}
        for row in ledger.candidates(run.id):
            tree._place(Node(row.round, row.candidate, scores.get(row.candidate.id)))
        return tree

    def before(self, round: int) -> Tree:
        """Returns the part that earlier rounds made; a view, that costs nothing."""
        return Tree(self.run, self._grown, round)

    # Growing. The ledger first: what is not stored did not happen.

    def add_idea(self, round: int, idea: Idea) -> None:
        """Stores an idea, unless it is there."""
        if idea.id not in self._grown.ideas:
            self._grown.ledger.add_idea(self.run.id, round, idea)
            self._place_idea(IdeaRow(round=round, idea=idea))

    def add_candidate(self, round: int, candidate: Candidate) -> None:
        """Stores a candidate, unless it is there."""
        if candidate.id not in self._grown.nodes:
            self._grown.ledger.add_candidate(self.run.id, round, candidate)
            self._place(Node(round, candidate, None))

    def add_trial(self, trial: Trial) -> Node:
        """Stores the trial of a candidate that is there; returns the candidate as it stands now."""
        self._grown.ledger.add_trial(self.run.id, trial)
        before = self._grown.nodes[trial.candidate]
        node = self._grown.nodes[trial.candidate] = Node(before.round, before.candidate, Score.of(trial))
        return node

    def _place_idea(self, row: IdeaRow) -> None:
        idea = row.idea
        self._grown.ideas[idea.id] = row
        self._grown.ideas_of_round[row.round].append(idea.id)
        self._grown.ideas_on[idea.parent].append(idea.id)

    def _place(self, node: Node) -> None:
        self._grown.nodes[node.candidate.id] = node
        self._grown.numbers[node.candidate.id] = len(self._grown.nodes)
        self._grown.nodes_of_round[node.round].append(node.candidate.id)
        if node.candidate.idea:
            self._grown.attempts[node.candidate.idea].append(node.candidate.id)

    # Reading.

    @property
    def rounds(self) -> range:
        """The rounds that made something, or could have."""
        if self._end is not None:
            return range(1, self._end)
        return range(1, max((*self._grown.ideas_of_round, *self._grown.nodes_of_round), default=0) + 1)

    @property
    def ideas(self) -> Iterator[IdeaRow]:
        """The ideas round by round, those of one parent together: in an order that no race decides."""
        for number in self.rounds:
            yield from self._sorted(number)

    def latest_ideas(self, count: int) -> tuple[int, list[IdeaRow]]:
        """Returns how many ideas there are, and the last `count` of them in the order of `ideas`."""
        late: list[IdeaRow] = []
        for number in reversed(self.rounds):
            late[:0] = self._sorted(number)
            if len(late) >= count:
                break
        return sum(len(self._grown.ideas_of_round.get(number, ())) for number in self.rounds), late[-count:]

    def _sorted(self, round: int) -> list[IdeaRow]:
        return sorted(self._rows_of(round), key=lambda row: row.idea.parent)

    @property
    def nodes(self) -> Iterator[Node]:
        """The candidates round by round, within a round as they came."""
        return itertools.chain.from_iterable(self.of_round(number) for number in self.rounds)

    def ideas_of(self, round: int) -> Iterator[Idea]:
        """Yields the ideas of one round, as they came."""
        return (row.idea for row in self._rows_of(round))

    def _rows_of(self, round: int) -> list[IdeaRow]:
        return [self._grown.ideas[one] for one in self._grown.ideas_of_round.get(round, ())]

    def latest(self, count: int) -> list[Node]:
        """Returns the last `count` candidates, or as many as there are, oldest first."""
        late: list[Node] = []
        for number in reversed(self.rounds):
            late[:0] = self.of_round(number)
            if len(late) >= count:
                break
        return late[-count:]

    def number(self, candidate_id: str | None) -> int | None:
        """Returns the how-manieth of the run a candidate is, from 1; None for the problem's root."""
        return self._grown.numbers.get(candidate_id) if candidate_id else None

    def of_round(self, round: int) -> Iterator[Node]:
        """Yields the candidates of one round."""
        return (self._grown.nodes[one] for one in self._grown.nodes_of_round.get(round, ()))

    def idea(self, idea_id: str | None) -> Idea | None:
        """Returns an idea; None for a candidate without one."""
        row = self._grown.ideas.get(idea_id) if idea_id else None
        return row.idea if row else None

    def idea_of(self, round: int, idea_id: str) -> Idea | None:
        """Returns an idea that a round has, as it is stored; None where that round has it not."""
        row = self._grown.ideas.get(idea_id)
        return row.idea if row and row.round == round else None

    def node(self, candidate_id: str | None) -> Node | None:
        """Returns a candidate's node; None for the problem's root."""
        return self._grown.nodes.get(candidate_id) if candidate_id else None

    def trial(self, node: Node) -> Trial | None:
        """Returns all that was found of a candidate, from the ledger: a tree of ten thousand holds no evidence."""
        return self._grown.trial(self.run.id, node.candidate.id) if node.score else None

    def attempts(self, idea_id: str) -> tuple[Node, ...]:
        """Returns the candidates of an idea: its implementations in each language and their repairs, as they came."""
        return tuple(self._grown.nodes[one] for one in self._grown.attempts.get(idea_id, ()))

    def ideas_on(self, parent: str) -> tuple[Idea, ...]:
        """Returns the ideas that were had on a candidate, or on the root."""
        rows = (self._grown.ideas[one] for one in self._grown.ideas_on.get(parent, ()))
        return tuple(row.idea for row in rows if self._end is None or row.round < self._end)

    def lineage(self, node: Node) -> tuple[Node, ...]:
        """Returns the candidates from the first one to `node`, which is the last."""
        path: dict[str, Node] = {}
        step: Node | None = node
        while step is not None and step.candidate.id not in path:
            path[step.candidate.id] = step
            step = self.node(step.candidate.parent)
        return tuple(reversed(path.values()))
