"""Which ideas are known already: near-duplicates are kept and told, and not implemented again.

An idea repeats another one of the same category if their titles share most of their words, and if the other one
- was had on the same kernel, or
- is in the kernel: it was implemented on the way to it.

The same words on another kernel are another idea: what lost on one may win on the next.

Not covered: the same method in other words; the model is shown what was tried and asked for something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final

from agentgen.records.idea import Idea
from agentgen.search.tree import Node, Tree

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
    return next((other for other in (*_known(tree, idea.parent, parent), *fresh) if repeats(idea, other)), None)


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


def _words(title: str) -> frozenset[str]:
    words = re.findall(r"\w+", title.casefold())
    return frozenset(word.removesuffix("s") for word in words) - _SAY_NOTHING
