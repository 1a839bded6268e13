"""Ideas that won on related problems, to be offered on this one.

Problems are related if their references name an operation of torch in common (`nn.Conv2d` and `F.conv2d` are one). An
idea won if its best implementation passed and is faster beyond doubt than the kernel it was had on. Of each idea only
its words are told: its code was for another problem.

Only runs that began before this one count, of the same kind of device and arithmetic, the latest few of them.
"""

from __future__ import annotations

import re
from typing import Final

from agentgen.records.run import Run
from agentgen.search.history import Fate, fate
from agentgen.search.select import beats
from agentgen.search.tree import Tree
from agentgen.store.ledger import Ledger

RUNS: Final = 12
IDEAS: Final = 6
_OPERATION: Final = re.compile(r"\b(?:F|nn|functional|torch)\.([A-Za-z_]\w*)")
_NO_OPERATION: Final = re.compile(
    r"module|parameter|functional|nn|tensor|rand\w*|empty|zeros|ones|init|b?float\d*|half|double|u?int\d*|long|manualseed"
)


def won_elsewhere(ledger: Ledger, run: Run) -> str:
    """Returns a line for each of the ideas that won by most on related problems; none: an empty text."""
    ours = operations(run.problem.reference)
    related = [
        other
        for other in ledger.runs()
        if other.created < run.created
        and other.problem.name != run.problem.name
        and other.device_type == run.device_type
        and other.arithmetic is run.arithmetic
        and ours & operations(other.problem.reference)
    ]
    found: dict[str, tuple[float, str]] = {}
    for other in related[-RUNS:]:
        tree = Tree.read(ledger, other)
        for row in tree.ideas:
            became = fate(tree, row.idea)
            best, parent = became.best, tree.node(row.idea.parent)
            if best and became.gain and beats(best, parent) and row.idea.same_as is None:
                line = _line(other, row.idea.title, row.idea.category.value, became)
                found[row.idea.title] = max(found.get(row.idea.title, (0.0, "")), (became.gain.low, line))
    return "\n".join(line for _, line in sorted(found.values(), reverse=True)[:IDEAS])


def operations(reference: str) -> frozenset[str]:
    """Returns the operations of torch that a reference names, without case and underscores."""
    names = {name.lower().replace("_", "") for name in _OPERATION.findall(reference)}
    return frozenset(name for name in names if not _NO_OPERATION.fullmatch(name))


def _line(run: Run, title: str, category: str, became: Fate) -> str:
    assert became.gain
    assert became.best
    gain = f"{became.gain.ratio:.2f}x [{became.gain.low:.2f}, {became.gain.high:.2f}]"
    return f"- **{title}** ({category}): {gain} on {run.problem.title}, in {became.best.candidate.language.value}"
