"""What a round grows from: plain functions, chosen by name (`records.run.Strategy`).

A strategy is given what the rounds before made, what they grew from, and what of this round leads nowhere (nothing
recorded, no usable answer). It returns all that this round should grow from; where something leads nowhere it returns
one more. It decides by nothing else, so a resumed run decides the same.

- `ideas_tree`: round 1 from the reference; later from the best kernels, each once (`select.next_parent`).
- `best_first`: later from the kernels with the highest weight, which may be taken again:
  sigmoid((s - median) / MAD) / (1 + n), s the lower end of the speedup's interval, n how often it was grown from. The
  form is ShinkaEvolve's (Lange et al. 2025, arXiv 2509.19349), after the Darwin Gödel Machine (arXiv 2505.22954); ours
  takes the interval's lower end for the score, and no luck: the highest weights are taken, not drawn.
- `best_of_n`: each round from the reference.
- `refine`: each round from the fastest program, without ideas.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentgen.records.run import Strategy
from agentgen.search.select import eligible, in_reach, leader, next_parent, speedup
from agentgen.search.tree import Node, Tree

SHARPNESS: Final = 10.0
"""Of the sigmoid, as in the papers: one MAD above the median weighs 1.0, one below nothing."""


@dataclass(frozen=True)
class Growth:
    """One thing that a round grows from."""

    parent: str | None
    """A candidate; None for the reference."""
    nth: int
    """How often it was grown from before."""
    ideas: int
    """How many ideas to ask for; 0 for a faster program at once."""


Choice = Callable[[Tree, Sequence[Growth], Collection[Growth]], "tuple[Growth, ...]"]


def ideas_tree(tree: Tree, past: Sequence[Growth], dead: Collection[Growth]) -> tuple[Growth, ...]:
    """Grows from the reference, then from the best kernels of all rounds that nothing grew from yet."""
    plan = tree.run.plan
    if not past:
        return (Growth(None, 0, plan.ideas),)
    taken = {growth.parent for growth in past}
    able = [node for node in eligible(tree.nodes) if node.candidate.id not in taken]
    left = {node.candidate.id: node for node in in_reach(able, plan.parents + len(dead))}
    chosen: list[Node] = []
    grown: list[Growth] = []
    # One that leads nowhere stays chosen: who follows must not depend on which answers are there already.
    while len(grown) - len(dead) < plan.parents and (node := next_parent(left.values(), chosen)):
        chosen.append(node)
        del left[node.candidate.id]
        grown.append(Growth(node.candidate.id, 0, plan.next_ideas))
    return tuple(grown)


def best_first(tree: Tree, past: Sequence[Growth], dead: Collection[Growth]) -> tuple[Growth, ...]:
    """Grows from the reference, then from the kernels with the highest weight."""
    plan = tree.run.plan
    if not past:
        return (Growth(None, 0, plan.ideas),)
    times = Counter(growth.parent for growth in past)
    nodes = eligible(tree.nodes)
    weight, low = weights(nodes, times), lows(nodes)
    ranked = sorted(weight, key=lambda one: (-weight[one], -low[one], one))  # far up, many weigh the same
    return tuple(Growth(one, times[one], plan.next_ideas) for one in ranked[: plan.parents + len(dead)])


def best_of_n(tree: Tree, past: Sequence[Growth], dead: Collection[Growth]) -> tuple[Growth, ...]:
    """Grows from the reference every time."""
    return (Growth(None, len(past), tree.run.plan.ideas),) if not dead else tuple(dead)


def refine(tree: Tree, past: Sequence[Growth], dead: Collection[Growth]) -> tuple[Growth, ...]:
    """Grows from the fastest program there is."""
    if dead:
        return tuple(dead)
    best = leader(tree.nodes)
    parent = best.candidate.id if best else None
    return (Growth(parent, sum(growth.parent == parent for growth in past), 0),)


def weights(nodes: Sequence[Node], times: Mapping[str | None, int]) -> dict[str, float]:
    """Returns the weight of each candidate in `best_first`, by its id.

    Args:
        nodes: eligible ones.
        times: how often each was grown from.
    """
    scores = lows(nodes)
    if not scores:
        return {}
    median = statistics.median(scores.values())
    mad = statistics.median(abs(low - median) for low in scores.values())
    return {
        one: _sigmoid(SHARPNESS * _scaled(low - median, mad)) / (1 + times.get(one, 0)) for one, low in scores.items()
    }


def lows(nodes: Sequence[Node]) -> dict[str, float]:
    """Returns the lower ends of the speedups' intervals by candidate; 1 where none was timed."""
    return {node.candidate.id: found.low if (found := speedup(node)) else 1.0 for node in nodes}


def _scaled(distance: float, mad: float) -> float:
    if mad > 0:
        return distance / mad
    return math.copysign(1.0, distance) if distance else 0.0


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-min(max(x, -700.0), 700.0)))


STRATEGIES: Final[Mapping[Strategy, Choice]] = {
    Strategy.IDEAS_TREE: ideas_tree,
    Strategy.BEST_FIRST: best_first,
    Strategy.BEST_OF_N: best_of_n,
    Strategy.REFINE: refine,
}
PERSISTENT: Final = frozenset({Strategy.BEST_OF_N, Strategy.REFINE})
"""They have one thing to grow from: where an answer leads nowhere, the next round asks for another one."""
