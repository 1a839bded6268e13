"""Tree: a run as the ledger tells it, frozen at one moment. Holds no state of its own; read it again after a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from agentgen.records.candidate import Candidate
from agentgen.records.idea import Idea
from agentgen.records.run import Run
from agentgen.records.trial import Trial
from agentgen.store.ledger import Ledger
from agentgen.store.rows import IdeaRow


@dataclass(frozen=True)
class Node:
    """A candidate with what is known of it."""

    round: int
    candidate: Candidate
    trial: Trial | None
    """None until it was evaluated."""


@dataclass(frozen=True)
class Tree:
    """Ideas, candidates and trials of one run, oldest first."""

    run: Run
    ideas: tuple[IdeaRow, ...]
    nodes: tuple[Node, ...]
    ended: Mapping[str, str]
    """Why a branch ended, by the id of its request."""

    @classmethod
    def read(cls, ledger: Ledger, run: Run) -> Tree:
        """Returns the run as it is stored now."""
        trials = {trial.candidate: trial for trial in ledger.trials(run.id)}
        nodes = (Node(row.round, row.candidate, trials.get(row.candidate.id)) for row in ledger.candidates(run.id))
        return cls(run, ledger.ideas(run.id), tuple(nodes), ledger.ended(run.id))

    def before(self, round: int) -> Tree:
        """Returns the part that earlier rounds made. What a round is given depends on this part only, so a round that
        is resumed halfway is given the same as at its start."""
        ideas = tuple(row for row in self.ideas if row.round < round)
        return Tree(self.run, ideas, tuple(node for node in self.nodes if node.round < round), self.ended)

    @cached_property
    def _idea_by_id(self) -> Mapping[str, Idea]:
        return {row.idea.id: row.idea for row in self.ideas}

    @cached_property
    def _node_by_id(self) -> Mapping[str, Node]:
        return {node.candidate.id: node for node in self.nodes}

    def idea(self, idea_id: str | None) -> Idea | None:
        """Returns an idea; None for a candidate without one."""
        return self._idea_by_id.get(idea_id) if idea_id else None

    def node(self, candidate_id: str | None) -> Node | None:
        """Returns a candidate's node; None for the problem's root."""
        return self._node_by_id.get(candidate_id) if candidate_id else None

    def attempts(self, idea_id: str) -> tuple[Node, ...]:
        """Returns the candidates of an idea: its implementations in each language and their repairs."""
        return tuple(node for node in self.nodes if node.candidate.idea == idea_id)

    def children(self, parent: str) -> tuple[Idea, ...]:
        """Returns the ideas that were had on a candidate, or on the root."""
        return tuple(row.idea for row in self.ideas if row.idea.parent == parent)

    def lineage(self, node: Node) -> tuple[Node, ...]:
        """Returns the candidates from the first one to `node`, which is the last."""
        path: list[Node] = []
        step: Node | None = node
        while step is not None and step not in path:
            path.append(step)
            step = self.node(step.candidate.parent)
        return tuple(reversed(path))
