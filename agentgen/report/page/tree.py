"""Where each idea and candidate of a run stands on the page.

1. Ideas hang on the kernel they were had on, candidates on their idea, repairs on what they repair.
2. Leaves get a row each, from top to bottom; whatever has children stands halfway between the first and the last.
3. Columns follow from what stands on the left: an idea needs room for its title.

Nothing recurses: a search that refines one program a thousand times is a thousand deep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from agentgen.records.candidate import Candidate
from agentgen.report.page.outcome import family
from agentgen.report.page.text import clip
from agentgen.report.solution import Solution
from agentgen.report.table import best

Kind = Literal["root", "idea", "candidate"]

ROOT: Final = "root"
ROW: Final = 26
_MARGIN: Final = 18
_WIDTH: Final[Mapping[Kind, int]] = {"root": 90, "idea": 252, "candidate": 122}
_WIDEST_IDEA: Final = 460
_ROOMY: Final = 1390
"""What a screen shows: ideas of a tree that is less deep get more room for their titles."""
_CHARACTERS: Final = {"idea": 6.4, "candidate": 7.3}
"""Width of one, as a rule."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One node of the tree, where it stands."""

    key: str
    """What it is called in the page and its URL."""
    kind: Kind
    parent: str | None
    x: float
    y: float
    label: str
    family: str
    """Of a candidate: what it came to. Of an idea: whether it was known already."""
    on_path: bool
    """It leads to the best kernel, or is it."""
    is_best: bool


@dataclass(frozen=True, slots=True)
class Picture:
    """The tree, laid out; the root first, every parent before its children."""

    spots: tuple[Spot, ...]
    width: float
    height: float

    @property
    def edges(self) -> Iterator[tuple[Spot, Spot]]:
        """From parent to child, those on the way to the best kernel last: they are drawn on top."""
        by_key = {spot.key: spot for spot in self.spots}
        for on_path in (False, True):
            for spot in self.spots:
                if spot.parent is not None and spot.on_path is on_path:
                    yield by_key[spot.parent], spot


def edge(parent: Spot, child: Spot) -> str:
    """Returns the path of the line between two spots. It begins behind the parent's words, not below them."""
    words = 0.0 if parent.kind == "root" else 14 + _CHARACTERS[parent.kind] * len(parent.label)
    start = min(parent.x + words, child.x - 24)
    near = start + 0.4 * (child.x - start)
    return f"M{start:.0f} {parent.y:.0f}C{near:.0f} {parent.y:.0f} {near:.0f} {child.y:.0f} {child.x:.0f} {child.y:.0f}"


def candidate_key(candidate_id: str) -> str:
    """Returns what a candidate is called in the page: all of its id. Of a source that is made to begin like another's
    only the beginning is alike, and one of the two would be shown for both."""
    return candidate_id


def idea_key(idea_id: str) -> str:
    """Returns what an idea is called in the page."""
    return f"i{idea_id}"


def lay_out(solution: Solution) -> Picture:
    """Returns the tree of a run."""
    parents = _parents(solution)
    children: defaultdict[str, list[str]] = defaultdict(list)
    for key, parent in parents.items():
        children[parent].append(key)
    order = _reached(children)
    # What hangs on nothing, or on itself, as only a doctored store has it, still is shown.
    reached = set(order)
    lost = [key for key in parents if key not in reached]
    for key in lost:
        children[parents[key]].remove(key)
        parents[key] = ROOT
        children[ROOT].append(key)
    order = _reached(children) if lost else order
    xs, ys = _columns(order, parents, _WIDTH), _rows(order, children)
    widths: Mapping[Kind, int] = _WIDTH
    wide = max(xs[key] + _WIDTH[_kind(key)] for key in order)
    ideas = {ROOT: 0}
    for key in order[1:]:  # parents come before their children
        ideas[key] = ideas[parents[key]] + (_kind(key) == "idea")
    deepest = max(ideas.values())
    if wide < _ROOMY and deepest:
        widths = {**_WIDTH, "idea": min(_WIDTH["idea"] + int((_ROOMY - wide) / deepest), _WIDEST_IDEA)}
        xs = _columns(order, parents, widths)
    titles = _titles(solution, int((widths["idea"] - 44) / _CHARACTERS["idea"]))
    top = best(solution.evaluated)
    path = _path(candidate_key(top.candidate) if top else None, parents)
    spots = [
        Spot(
            key,
            _kind(key),
            parents.get(key),
            xs[key],
            ys[key],
            *titles[key],
            on_path=key in path,
            is_best=bool(path) and key == path[0],
        )
        for key in order
    ]
    width = max(spot.x + widths[spot.kind] for spot in spots) + _MARGIN
    return Picture(tuple(spots), width, max(ys.values()) + ROW / 2 + _MARGIN / 2)


def _parents(solution: Solution) -> dict[str, str]:
    """Returns what hangs on what, in the order of the ledger, ideas first."""
    known = {candidate.id for candidate in solution.candidates}

    def on(candidate_id: str | None) -> str:
        return candidate_key(candidate_id) if candidate_id in known and candidate_id else ROOT

    found = {idea_key(idea.id): on(idea.parent) for idea in solution.ideas.values()}
    for candidate in solution.candidates:
        implements = candidate.idea in solution.ideas and not (candidate.repair and candidate.parent in known)
        parent = idea_key(candidate.idea) if implements and candidate.idea else on(candidate.parent)
        found[candidate_key(candidate.id)] = parent
    return found


def _reached(children: dict[str, list[str]]) -> list[str]:
    """Returns what hangs on the root, depth first, each once."""
    order, seen, todo = list[str](), set[str](), [ROOT]
    while todo:
        key = todo.pop()
        if key not in seen:
            seen.add(key)
            order.append(key)
            todo += reversed(children.get(key, []))
    return order


def _columns(order: list[str], parents: dict[str, str], widths: Mapping[Kind, int]) -> dict[str, float]:
    xs = {ROOT: float(_MARGIN)}
    for key in order[1:]:
        parent = parents[key]
        xs[key] = xs[parent] + widths[_kind(parent)]
    return xs


def _rows(order: list[str], children: dict[str, list[str]]) -> dict[str, float]:
    ys: dict[str, float] = {}
    leaves = 0
    for key in order:
        if not children.get(key):
            ys[key] = _MARGIN + leaves * ROW
            leaves += 1
    for key in reversed(order):  # children before parents
        if key not in ys:
            below = children[key]
            ys[key] = (ys[below[0]] + ys[below[-1]]) / 2
    return ys


def _path(key: str | None, parents: dict[str, str]) -> list[str]:
    found: dict[str, None] = {}
    while key is not None and key not in found:
        found[key] = None
        key = parents.get(key)
    return list(found)


def _kind(key: str) -> Kind:
    return "root" if key == ROOT else "idea" if key.startswith("i") else "candidate"


def _titles(solution: Solution, characters: int) -> dict[str, tuple[str, str]]:
    """Returns label and family of each node."""
    found = {ROOT: ("reference", "")}
    for idea in solution.ideas.values():
        found[idea_key(idea.id)] = clip(idea.title, characters), "known" if idea.same_as else ""
    for candidate in solution.candidates:
        trial = solution.trials.get(candidate.id)
        label = f"{headline(solution, candidate)} {candidate.language.value}"
        found[candidate_key(candidate.id)] = label, family(trial).name
    return found


def headline(solution: Solution, candidate: Candidate) -> str:
    """Returns what matters most of a candidate in a word."""
    trial = solution.trials.get(candidate.id)
    if trial is None:
        return "waits"
    if trial.speedup:
        return f"{trial.speedup.ratio:.2f}×"
    return "not timed" if trial.accepted else trial.outcome.value.lower().replace("_", " ")
