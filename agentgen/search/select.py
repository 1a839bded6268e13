"""Which candidates are best, and which of those the next ideas build on.

1. Only PASSED candidates with a timing count. Triton on a CPU passes without one (its interpreter checks, it does not
   measure), so such a candidate is a parent only where nothing at all was timed.
2. The top has the highest lower end of the speedup interval over the best baseline: a wide interval earns nothing.
3. Candidates whose interval reaches the top's are ties, if it is widened by the share that identical code differs by
   between processes (`records.trial.margin`): intervals of a tenth of a percent leave each other out by that alone.
   Among ties, one of an idea and a language not chosen yet wins, then the lower median time, then the id (so that two
   machines with the same trials choose the same).

Not covered: candidates timed on different machines are compared by their speedups as if it were one machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence

from agentgen.records.trial import Speedup, margin
from agentgen.search.tree import Node


def eligible(nodes: Iterable[Node]) -> list[Node]:
    """Returns the candidates that ideas may build on: the timed ones, else all that passed."""
    passed = [node for node in nodes if node.score is not None and node.score.accepted]
    return [node for node in passed if speedup(node) is not None] or passed


def next_parent(left: Collection[Node], chosen: Sequence[Node]) -> Node | None:
    """Returns the next best candidate to build on, or None when there is none left.

    Args:
        left: eligible candidates that may still be chosen.
        chosen: parents of this round that were chosen before it.
    """
    if not left:
        return None
    ideas = {node.candidate.idea for node in chosen}
    languages = {node.candidate.language for node in chosen}

    def preference(node: Node) -> tuple[int, float, str]:
        repeats = (node.candidate.idea in ideas) + (node.candidate.language in languages)
        return repeats, median_us(node), node.candidate.id

    return min(ties(left), key=preference)


def leader(nodes: Iterable[Node]) -> Node | None:
    """Returns the candidate that ideas build on first: the fastest of those that tie at the top."""
    return next_parent(eligible(nodes), ())


def in_reach(nodes: Sequence[Node], count: int) -> Sequence[Node]:
    """Returns those of `nodes` that may be among the first `count` that `next_parent` chooses, one after the other: a
    tie of the top when count - 1 are gone reaches above the count-th highest lower end."""
    lows = heapq.nlargest(count, (found.low for node in nodes if (found := speedup(node)) is not None))
    if len(lows) < count:
        return nodes
    return [node for node in nodes if reach(node) >= lows[-1]]


def ties(nodes: Collection[Node]) -> list[Node]:
    """Returns the nodes that reach the interval of the top; all where none was timed."""
    lows = [found.low for node in nodes if (found := speedup(node)) is not None]
    if not lows:
        return list(nodes)
    top = max(lows)
    return [node for node in nodes if reach(node) >= top]


def beats(node: Node, other: Node | None) -> bool:
    """Returns whether a candidate is faster beyond doubt than another one, or than the best baseline (None)."""
    found = speedup(node)
    return found is not None and (found.faster if other is None else found.low > reach(other))


def reach(node: Node) -> float:
    """Returns how high the speedup may be in another process: the upper end of its interval, and the margin above it;
    0 where it was not timed."""
    found = speedup(node)
    return found.high * (1 + margin(median_us(node))) if found is not None else 0.0


def speedup(node: Node) -> Speedup | None:
    """Returns the speedup over the best baseline; None where it was not timed."""
    return node.score.speedup if node.score is not None else None


def median_us(node: Node) -> float:
    """Returns the time of a call in microseconds, infinite where it was not timed."""
    found = node.score.median_us if node.score is not None else None
    return float("inf") if found is None else found
