"""What became of ideas, and how that is told: to the model, which is to learn from it, and to people.

The gain of an idea is what its prediction was about: its best implementation against the kernel it was had on (for an
idea on the reference: against the best baseline). Both were timed against the same baseline, so the interval is that of
a quotient: lower end by upper end, and the other way round. It is wider than need be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agentgen.records.idea import Became, Gain, Idea
from agentgen.records.score import Score
from agentgen.search.select import leader, speedup
from agentgen.search.tree import Node, Tree

_SHOWN: Final = 40
_LINE_CHARACTERS: Final = 240
_CHANGE_CHARACTERS: Final = 160


@dataclass(frozen=True)
class Fate:
    """What became of an idea so far."""

    attempts: tuple[Node, ...] = ()
    best: Node | None = None
    """Its fastest implementation that passed."""
    gain: Gain | None = None
    """None: nothing passed, or it or its parent was not timed."""

    @property
    def failure(self) -> Score | None:
        """The last one of an idea of which no implementation passed."""
        scores = [node.score for node in self.attempts if node.score]
        return scores[-1] if scores and self.best is None else None


def fate(tree: Tree, idea: Idea) -> Fate:
    """Returns what became of an idea."""
    attempts = tree.attempts(idea.id)
    best = leader(attempts)
    return Fate(attempts, best, _gain(tree, idea, best) if best else None)


def became(tree: Tree) -> dict[str, Became]:
    """Returns what became of each idea of a run, by its id."""
    found = {row.idea.id: fate(tree, row.idea) for row in tree.ideas}
    return {
        one: Became(candidates=len(of.attempts), gain=of.gain, failure=score_line(of.failure) if of.failure else None)
        for one, of in found.items()
    }


def history(tree: Tree, parent: Node | None) -> str:
    """Returns one line for each idea of `tree` with what became of it, the ideas of `parent`'s own line marked."""
    ancestors = {node.candidate.idea for node in tree.lineage(parent)} if parent else set[str | None]()
    count, rows = tree.latest_ideas(_SHOWN)
    lines = [_idea_line(tree, row.idea, row.idea.id in ancestors) for row in rows]
    if count > _SHOWN:
        lines = [f"- ({count - _SHOWN} earlier ideas are left out)", *lines]
    return "\n".join(lines) or "Nothing yet: this is the first round."


def steps(tree: Tree, parent: Node | None) -> str:
    """Returns one line for each program that was tried without an idea in words, and what became of it."""
    nodes, lines = tree.latest(_SHOWN), list[str]()
    for node in nodes:
        origin = tree.number(node.candidate.parent)
        made = f"made from {f'program {origin}' if origin else 'the reference'}"
        mark = " [the one above]" if parent and node.candidate.id == parent.candidate.id else ""
        lines.append(
            f"- program {tree.number(node.candidate.id)}, {made}{mark}: {score_line(node.score)}{_change(node)}"
        )
    left_out = (tree.number(nodes[0].candidate.id) or 1) - 1 if nodes else 0
    if left_out:
        lines.insert(0, f"- ({left_out} earlier programs are left out)")
    return "\n".join(lines) or "Nothing yet: this is the first program."


def lineage(tree: Tree, node: Node) -> str:
    """Returns the ideas that led to a candidate, the first one first, with the speedup that each step reached."""
    told: list[str] = []
    for step in tree.lineage(node):
        idea = tree.idea(step.candidate.idea)
        title = idea.title if idea else "a program without an idea in words"
        repair = f", repair {step.candidate.repair}" if step.candidate.repair else ""
        told.append(f"{title}{repair} ({score_line(step.score)})")
    return " -> ".join(told)


def failures(tree: Tree, ids: tuple[str, ...]) -> str:
    """Returns one line for each of some candidates that failed."""
    nodes = (tree.node(one) for one in ids)
    return "\n".join(f"- {score_line(node.score)}" for node in nodes if node)


def score_line(score: Score | None) -> str:
    """Returns what was found in a few words, such as `1.42x, 812 us` or `BUILD_FAILED: no ModelNew`."""
    if score is None:
        return "not evaluated"
    if not score.accepted:
        return f"{score.outcome.value}: {clip(score.reason or '')}"
    if score.median_us is None or score.speedup is None:
        return "correct, not timed"
    return f"{score.speedup.ratio:.2f}x, {score.median_us:.4g} us"


def fate_line(tree: Tree, idea: Idea) -> str:
    """Returns what became of an idea beside what was predicted, such as `predicted 1.5x, reached 1.2x [1.1, 1.3]`."""
    found = fate(tree, idea)
    predicted = f"predicted {idea.predicted_speedup:.2g}x, " if idea.predicted_speedup else ""
    if idea.same_as:
        return "known already"
    if found.gain:
        return f"{predicted}reached {found.gain.ratio:.2f}x [{found.gain.low:.2f}, {found.gain.high:.2f}]"
    if found.failure:
        tries = len(found.attempts)
        return f"{predicted}abandoned after {tries} {'try' if tries == 1 else 'tries'}"
    return f"{predicted}not timed" if found.best else f"{predicted}no code"


def clip(text: str) -> str:
    """Returns a text in one line of bearable length."""
    text = " ".join(text.split())
    return text if len(text) <= _LINE_CHARACTERS else text[: _LINE_CHARACTERS - 3] + "..."


def _change(node: Node) -> str:
    """Returns what a program says that it changed."""
    text = node.candidate.change
    return f". Change: {text[:_CHANGE_CHARACTERS]}" if text else ""


def _idea_line(tree: Tree, idea: Idea, marked: bool) -> str:
    attempts = tree.attempts(idea.id)
    outcomes: list[str] = []
    for language in tree.run.languages:
        nodes = [node for node in attempts if node.candidate.language is language]
        if nodes:
            shown = leader(nodes) or nodes[-1]
            outcomes.append(f"{language.value}: {score_line(shown.score)}")
    parent = tree.node(idea.parent)
    on = tree.idea(parent.candidate.idea) if parent else None
    mark = " [in the line of the kernel above]" if marked else ""
    return (
        f"- **{idea.title}** ({idea.category.value}; on {f'the kernel of {on.title!r}' if on else 'the reference'})"
        f"{mark}: {fate_line(tree, idea)}{''.join(f'; {outcome}' for outcome in outcomes)}"
    )


def _gain(tree: Tree, idea: Idea, best: Node) -> Gain | None:
    ours, parent = speedup(best), tree.node(idea.parent)
    if ours is None:
        return None
    if parent is None:
        return Gain(ratio=ours.ratio, low=ours.low, high=ours.high)
    theirs = speedup(parent)
    if theirs is None:
        return None
    return Gain(ratio=ours.ratio / theirs.ratio, low=ours.low / theirs.high, high=ours.high / theirs.low)
