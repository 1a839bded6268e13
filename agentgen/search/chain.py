"""The way from the reference to a kernel: its ideas, what became of them, and whose words and code they are.

A kernel's author is the model whose reply holds its source, to the byte: who is on the leaderboard is looked up in what
was said, not in what was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, Role
from agentgen.records.entry import Step
from agentgen.records.idea import Idea
from agentgen.search.history import became
from agentgen.search.replies import Unusable, parse_ideas, parse_source
from agentgen.search.tree import Node, Tree
from agentgen.store.rows import Exchange

_ALL_IDEAS = 1000
"""More than any reply has: the ones that were not taken name the same author."""


def chain(tree: Tree, node: Node, exchanges: Sequence[Exchange]) -> tuple[Step, ...]:
    """Returns the kernels from the first one on the reference to `node`, which is the last.

    Args:
        tree: the run.
        node: of `tree`.
        exchanges: all of the run.
    """
    fates = became(tree)
    steps: list[Step] = []
    for each in tree.lineage(node):
        candidate, idea = each.candidate, tree.idea(each.candidate.idea)
        step = Step(
            candidate=candidate.id,
            language=candidate.language,
            repair=candidate.repair,
            idea=idea,
            change=None if idea else candidate.change,
            became=fates[idea.id] if idea else None,
            score=each.score,
            idea_by=_proposer(idea, exchanges) if idea else None,
            written_by=author(candidate, exchanges),
        )
        steps.append(step)
    return tuple(steps)


def author(candidate: Candidate, exchanges: Sequence[Exchange]) -> str | None:
    """Returns the model whose reply holds the source of a candidate; None where no reply does."""
    for exchange in exchanges:
        asked = exchange.request.role is not Role.IDEAS and exchange.request.target == candidate.language.value
        if asked and exchange.reply and parse_source(exchange.reply) == candidate.source:
            return exchange.reply.model
    return None


def _proposer(idea: Idea, exchanges: Sequence[Exchange]) -> str | None:
    for exchange in exchanges:
        asked = exchange.request.role is Role.IDEAS and exchange.request.parent == idea.parent
        if asked and exchange.reply and idea.id in _ideas(exchange.reply, idea.parent):
            return exchange.reply.model
    return None


def _ideas(reply: ChatReply, parent: str) -> frozenset[str]:
    found = parse_ideas(reply, parent, _ALL_IDEAS)
    return frozenset() if isinstance(found, Unusable) else frozenset(idea.id for idea in found)
