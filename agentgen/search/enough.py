"""When a search ends before its plan does: what more would it find?"""

from __future__ import annotations

from typing import Final

from agentgen.records.machine import Target
from agentgen.search.select import beats, leader
from agentgen.search.tree import Tree

DRY_CANDIDATES: Final = 12
"""At least so many must have been evaluated in the dry rounds: a round may be one candidate."""


def enough(tree: Tree, target: Target) -> str | None:
    """Returns why a search ends that has come as far as `tree`; None: it goes on.

    1. A kernel reaches the share of its roofline bound that the plan sets: what is left is less than a model can see.
       Not while the best baseline is as fast, which then is as near to the bound: torch's compiler reaches 98% of the
       bound of rmsnorm (1816 us for 1779 on an H200), where a kernel at 95% has yet to win.
       Only where memory binds: other bounds count the operations of the usual algorithm, and another may need fewer
       (a recorded convolution reaches 115% of its bound on a CPU).
    2. In the last rounds no kernel came that is faster beyond doubt (`select.beats`) than the best one before them.
    """
    plan = tree.run.plan
    near = [
        fraction
        for node in tree.of_round(tree.rounds[-1] if tree.rounds else 0)  # those before were looked at then
        if node.score and (fraction := node.score.roofline_fraction) is not None and fraction >= plan.target_fraction
        if beats(node, None)
    ]
    if near and target.bound_by == "memory":
        return f"a kernel reaches {max(near):.0%} of its roofline bound"
    if len(tree.rounds) <= plan.dry_rounds:
        return None
    dry = tree.rounds[-plan.dry_rounds :]
    before = leader(tree.before(dry[0]).nodes)
    late = [node for number in dry for node in tree.of_round(number) if node.score]
    if before is None or len(late) < DRY_CANDIDATES or any(beats(node, before) for node in late):
        return None
    return f"{len(late)} candidates of the last {len(dry)} rounds were no faster than the best one before them"
