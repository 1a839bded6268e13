"""Which ideas are known already: near-duplicates are kept and told, and not implemented again.

An idea repeats another one of the same category if their titles share most of their words, and if the other one
- was had on the same kernel, or
- is in the kernel: it was implemented on the way to it.

The same words on another kernel are another idea: what lost on one may win on the next. An idea of which no code passed
may come once more on the same kernel, with what was wrong put right; not more often, or a search could spend all its
rounds on it.

Not covered: the same method in other words; the model is shown what was tried and asked for something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Final

from agentgen.records.idea import Idea
from agentgen.search.tree import Node, Tree

TRIES: Final = 2
"""Of an idea whose code fails on the same kernel; repairs and implementations of one answer are one try."""
SHARED_WORDS: Final = 0.75
"""Of all words of two titles (Jaccard). Of 80 pairs of ideas from one answer in the shipped recordings, which were to
differ, the nearest share 0.38 of their words and 0.60 of their letters."""
ALIKE: Final = 0.9
"""Of the letters, as difflib counts them: other spellings, other numbers."""
_SAY_NOTHING: Final = frozenset({"a", "an", "and", "by", "for", "from", "in", "into", "of", "on", "the", "to", "with"})


def known_as(idea: Idea, tree: Tree, parent: Node | None, fresh: Sequence[Idea]) -> Idea | None:
    """Returns the idea that `idea` repeats; None for a new one.

    Args:
        idea: on `parent`.
        tree: what earlier rounds made.
        parent: the kernel it was had on; None for the reference.
        fresh: the ideas before it in the same answer.
    """
    failed: dict[str, Idea] = {}
    for other in filter(partial(repeats, idea), _known(tree, idea.parent, parent)):
        first = tree.idea(other.same_as) or other
        if other.id == idea.id or not _failed(tree, first):
            return other
        failed[first.id] = first
    if len(failed) >= TRIES:
        return next(iter(failed.values()))
    return next(filter(partial(repeats, idea), fresh), None)


def repeats(idea: Idea, other: Idea) -> bool:
    """Returns whether two ideas say the same, by category and title."""
    if idea.category is not other.category:
        return False
    ours, theirs = _words(idea.title), _words(other.title)
    if ours | theirs and len(ours & theirs) >= SHARED_WORDS * len(ours | theirs):
        return True
    letters = SequenceMatcher(None, idea.title.casefold(), other.title.casefold())
    # The first two are upper bounds, and a hundred times as quick.
    return letters.real_quick_ratio() >= ALIKE and letters.quick_ratio() >= ALIKE and letters.ratio() >= ALIKE


def _known(tree: Tree, root: str, parent: Node | None) -> Iterable[Idea]:
    yield from tree.ideas_on(root)
    for step in tree.lineage(parent) if parent else ():
        idea = tree.idea(step.candidate.idea)
        if idea is not None:
            yield idea


def _failed(tree: Tree, idea: Idea) -> bool:
    nodes = tree.attempts(idea.id)
    return bool(nodes) and all(node.score is not None and node.score.failed for node in nodes)


def _words(title: str) -> frozenset[str]:
    words = re.findall(r"\w+", title.casefold())
    return frozenset(word.removesuffix("s") for word in words) - _SAY_NOTHING
