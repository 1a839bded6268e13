"""Which candidates the next ideas build on.

1. Only PASSED candidates with a timing count. Triton on a CPU passes without one (its interpreter checks, it does not
   measure), so such a candidate is a parent only where nothing at all was timed.
2. The top has the highest lower end of the speedup interval over the best baseline: a wide interval earns nothing.
3. Candidates whose interval overlaps the top's are ties. Among ties, one of an idea and a language not chosen yet
   wins, then the lower median time, then the id (so that two machines with the same trials choose the same).

Not covered: candidates timed on different machines are compared by their speedups as if it were one machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from agentgen.records.trial import Outcome, Speedup
from agentgen.search.tree import Node


def eligible(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Returns the candidates that ideas may build on: the timed ones, else all that passed."""
    passed = [node for node in nodes if node.trial is not None and node.trial.outcome is Outcome.PASSED]
    timed = [node for node in passed if _speedup(node) is not None]
    return tuple(timed or passed)


def next_parent(nodes: Iterable[Node], chosen: Sequence[Node], excluded: Collection[str]) -> Node | None:
    """Returns the next best candidate to build on, or None when there is none left.

    Args:
        nodes: all candidates of the rounds so far.
        chosen: parents of this round that were chosen before it.
        excluded: ids of candidates that were asked for ideas in earlier rounds.
    """
    taken = {node.candidate.id for node in chosen} | set(excluded)
    left = [node for node in eligible(nodes) if node.candidate.id not in taken]
    if not left:
        return None
    ideas = {node.candidate.idea for node in chosen}
    languages = {node.candidate.language for node in chosen}

    def preference(node: Node) -> tuple[int, float, str]:
        repeats = (node.candidate.idea in ideas) + (node.candidate.language in languages)
        return repeats, _median_us(node), node.candidate.id

    return min(_ties(left), key=preference)


def leader(nodes: Iterable[Node]) -> Node | None:
    """Returns the candidate that ideas build on first: the fastest of those that tie at the top."""
    return next_parent(nodes, (), ())


def _ties(nodes: Sequence[Node]) -> list[Node]:
    """Returns the nodes whose interval overlaps that of the top."""
    lows = [speedup.low for node in nodes if (speedup := _speedup(node)) is not None]
    if not lows:
        return list(nodes)
    return [node for node in nodes if (speedup := _speedup(node)) is not None and speedup.high >= max(lows)]


def _speedup(node: Node) -> Speedup | None:
    return node.trial.speedup if node.trial is not None and node.trial.timing is not None else None


def _median_us(node: Node) -> float:
    timing = node.trial.timing if node.trial is not None else None
    return timing.median_us if timing else float("inf")
