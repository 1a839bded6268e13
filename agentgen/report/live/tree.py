"""The tree of a run, drawn in as many rows as there are: the busy branches first, then the best ones.

What a drawing needs is kept up as the run grows, so that one costs what its rows cost, however large the tree is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rich.text import Text

from agentgen.records.candidate import SHORT_ID, Candidate
from agentgen.records.idea import Idea
from agentgen.records.score import Score
from agentgen.report import figures
from agentgen.report.plain import plain
from agentgen.report.table import first_reason, outcome_style

WAITS: Final = "wait"
"""The stage of a candidate that no judge has begun with."""
_ROOT: Final = ""
_NO_KERNEL: Final = -1.0
"""How good a branch without an accepted kernel is; one that could not be timed is 0."""
_ROOMY: Final = 80
"""Columns from which on guides may be wide."""
_REASON: Final = 10_000
"""Characters of a reason that are looked at for its first line."""


@dataclass(eq=False, slots=True)
class _Node:
    """An idea or a candidate, and what is known of all that hangs below it."""

    label: Text
    above: _Node | None = None
    below: list[_Node] = field(default_factory=list["_Node"])
    verdict: Text | None = None
    stage: str = ""
    """Of a candidate without a verdict; empty: of none that is known."""
    since_s: float = 0.0
    """When it began."""
    busy: int = 0
    """Evaluations under way in the branch."""
    best: float = _NO_KERNEL
    """Lower end of the best speedup in the branch."""

    def interest(self) -> tuple[bool, float]:
        """Returns what branches are ranked by."""
        return self.busy > 0, self.best

    def up(self) -> Iterator[_Node]:
        """Yields the node and all above it."""
        node: _Node | None = self
        while node is not None:
            yield node
            node = node.above


class LiveTree:
    """Ideas, their candidates, the ideas had on those, and so on."""

    def __init__(self) -> None:
        """Of nothing yet."""
        self._root = _Node(Text())
        self._nodes = {_ROOT: self._root}
        self._open: dict[str, _Node] = {}
        """Candidates without a verdict."""

    def add_idea(self, idea: Idea) -> None:
        """Hangs an idea below the candidate that it is about."""
        title = plain(idea.title)
        self._place(idea.id, idea.parent, row(f"{title} (known)" if idea.same_as else title))

    def add_candidate(self, candidate: Candidate, now_s: float) -> None:
        """Hangs a candidate below its idea, a repair below the candidate that it repairs."""
        above = (candidate.parent if candidate.repair else candidate.idea) or _ROOT
        node = self._place(candidate.id, above, row(f"{candidate.id[:SHORT_ID]} {candidate.language.value}", "cyan"))
        if node.verdict is None and candidate.id not in self._open:
            self._open[candidate.id] = node
            node.stage, node.since_s = WAITS, now_s

    def begin(self, candidate_id: str, stage: str, now_s: float) -> None:
        """Notes the stage of a candidate that has no verdict."""
        if node := self._open.get(candidate_id):
            if node.stage == WAITS:
                _count(node, 1)
            node.stage, node.since_s = stage, now_s

    def end(self, score: Score) -> None:
        """Notes what was found of a candidate."""
        if self._open.pop(score.candidate, None) and (node := self._nodes[score.candidate]).stage != WAITS:
            _count(node, -1)
        if (node := self._nodes.get(score.candidate)) is None:
            return
        node.verdict = found(score)
        best = score.speedup.low if score.speedup else 0.0 if score.accepted else _NO_KERNEL
        for one in node.up():
            one.best = max(one.best, best)

    def halt(self) -> None:
        """Notes that nothing is under way any more."""
        for node in self._open.values():
            if node.stage != WAITS:
                _count(node, -1)
        self._open.clear()

    @property
    def stages(self) -> Iterator[tuple[str, float]]:
        """Yields the stages of candidates without a verdict, and when they began."""
        return ((node.stage, node.since_s) for node in self._open.values())

    def rows(self, count: int, width: int, now_s: float) -> list[Text]:
        """Returns at most so many rows; the last one counts what was left out."""
        total = len(self._nodes) - 1
        if count < 1 or not total:
            return []
        fits = total <= count
        shown = self._shown(count if fits else count - 1)
        rows = list(self._drawn(shown, width, now_s, more=not fits))
        return rows if fits else [*rows, row(f"… {total - len(rows)} more", style="dim")]

    def _place(self, node_id: str, above: str, label: Text) -> _Node:
        """Only below what is already there: an id that comes again (a repair undone) cannot close a ring."""
        if node_id not in self._nodes:
            parent = self._nodes.get(above, self._root)
            parent.below.append(_Node(label, parent))
            self._nodes[node_id] = parent.below[-1]
        return self._nodes[node_id]

    def _shown(self, count: int) -> dict[_Node, list[_Node]]:
        """Returns which nodes have a row, by the one that they hang below: the first ones from the top down, where each
        is followed by its own branch."""
        shown: dict[_Node, list[_Node]] = {}
        stack = [(self._root, node) for node in reversed(_ranked(self._root, count))]
        while stack and count > 0:
            above, node = stack.pop()
            shown.setdefault(above, []).append(node)
            count -= 1
            stack += [(node, one) for one in reversed(_ranked(node, count))]
        return shown

    def _drawn(self, shown: dict[_Node, list[_Node]], width: int, now_s: float, *, more: bool) -> Iterator[Text]:
        """Yields the nodes that have a row, behind their guides; `more`: another row comes below them."""
        past, fork, corner = ("│   ", "├── ", "└── ") if width >= _ROOMY else ("│ ", "├ ", "└ ")
        top = shown.get(self._root, [])
        stack = [(node, "", node is top[-1] and not more) for node in reversed(top)]
        while stack:
            node, guide, last = stack.pop()
            guides = _cut(guide + (corner if last else fork), width // 2)
            yield row("").append(guides, "dim").append_text(self._label(node, now_s))
            below = shown.get(node, [])
            inner = guide + (" " * len(past) if last else past)
            stack += [(one, inner, one is below[-1]) for one in reversed(below)]

    def _label(self, node: _Node, now_s: float) -> Text:
        if node.verdict:
            return Text.assemble(node.label, " ", node.verdict)
        if not node.stage:
            return node.label
        clock = f" {figures.clock(now_s - node.since_s)}" if node.busy else ""
        return Text.assemble(node.label, (f" {node.stage}{clock}", "yellow"))


def found(score: Score) -> Text:
    """Returns what a trial came to."""
    text = Text(score.outcome.value, style=outcome_style(score.outcome))
    if score.median_us is not None:
        text.append(f" {figures.time(score.median_us)}, {figures.speedup(score.speedup)}", style="default")
    elif score.reason:
        text.append(f" {plain(first_reason([score.reason[:_REASON]]))}", style="default")
    elif score.accepted:
        text.append(" not timed", style="default")
    return text


def row(text: str, style: str = "default") -> Text:
    """Returns a text that takes one row however narrow the console: the height is counted in rows."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _count(node: _Node, more: int) -> None:
    for one in node.up():
        one.busy += more


def _ranked(node: _Node, count: int) -> list[_Node]:
    """Returns so many of the branches below a node, the most interesting first."""
    return heapq.nlargest(count, node.below, key=_Node.interest)


def _cut(guides: str, room: int) -> str:
    """Returns the guides of a row, without their beginning where they would leave no room for what they guide to."""
    return guides if len(guides) <= room else f"…{guides[len(guides) - room + 1 :]}" if room else ""
