"""The leaderboard: as tables for people, as Markdown, and as JSON. `report.standings` says who stands where."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from agentgen.records.candidate import SHORT_ID
from agentgen.records.entry import Finding
from agentgen.records.machine import Machine
from agentgen.records.trial import Speedup
from agentgen.report import figures
from agentgen.report.layout import table
from agentgen.report.plain import markdown, plain
from agentgen.report.standings import Board, Place, Standing
from agentgen.scoring.again import apart
from agentgen.store.entries import Kept

_IDEA = 160
"""Characters of an idea's title in Markdown."""
NUMBERS = ("median", "speedup", "over eager", "worst shape", "roofline")
_WIDE = (("rank", "kernel", "language", *NUMBERS, "accuracy"),)
_NARROW = (
    ("rank", "kernel", "language", "median", "speedup", "roofline"),
    ("kernel", "over eager", "worst shape", "accuracy"),
)
_ROOMY = 120
"""Below so many characters the figures of an entry get two tables."""
_STYLES = {Finding.SAME: "green", Finding.FASTER: "green", Finding.SLOWER: "red", Finding.WRONG: "bold red"}
CAPTION = (
    "speedup over the best baseline and over eager torch, each with its 95% interval; ranked by the lower end of the "
    "first, = where intervals overlap or are no further apart than identical kernels; worst shape: speedup over eager "
    "torch at the neighbouring shape where it is least; roofline: bound / measured; accuracy: the most accurate "
    "arithmetic whose gates are met"
)


def board_tables(boards: Sequence[Board], width: int) -> RenderableType:
    """Returns all boards: tables of figures, and of whose they are.

    Args:
        boards: in their order.
        width: of the screen, in characters.
    """
    parts: list[RenderableType] = []
    for board in boards:
        for title, heads in zip((heading(board), None), _WIDE if width >= _ROOMY else _NARROW, strict=False):
            shown = table(title, *heads, right=("rank", *NUMBERS), wrap=("speedup", "over eager", "worst shape"))
            for place in board.places:
                figure = cells(place)
                shown.add_row(*(figure[head] for head in heads))
            parts.append(shown)
        words = table(None, "kernel", "idea", "model", "certified", "reverified", wrap=("idea", "model"))
        for place in board.places:
            entry = place.entry
            words_of = Text(plain(idea(place)), no_wrap=True, overflow="ellipsis")
            model, day = Text(plain(entry.origin.model)), figures.day(entry.origin.certified)
            words.add_row(entry.id[:SHORT_ID], words_of, model, day, reverified(place.kept))
        dim = [Text(note, style="dim") for note in notes(board, boards)]
        parts += [words, *dim, Text()]
    return Group(*parts, Text(CAPTION, style="dim")) if parts else Text("no entries: agentgen leaderboard add RUN")


def model_table(standings: Sequence[Standing]) -> RenderableType:
    """Returns who wrote the kernels."""
    numbers = "entries", "boards", "firsts"
    shown = table("by model", "model", *numbers, "best rank on each board", right=numbers)
    for one in standings:
        counts = (str(number) for number in (one.entries, one.boards, one.firsts))
        shown.add_row(Text(plain(one.model)), *counts, Text(_ranks(one)))
    return shown


def boards_markdown(boards: Sequence[Board], base: Path) -> str:
    """Returns all boards in GitHub's Markdown.

    Args:
        boards: in their order.
        base: folder of the file that it is for: entries below it are linked.
    """
    heads = ("rank", "kernel", "language", "idea", "model", *NUMBERS, "accuracy", "certified", "reverified")
    parts: list[str] = []
    for board in boards:
        parts += [f"### {markdown(heading(board))}", ""]
        rows: list[tuple[str, ...]] = []
        for place in board.places:
            entry, row = place.entry, {head: markdown(cell) for head, cell in cells(place).items()}
            row["kernel"] = _link(row["kernel"], place.kept.folder, base)
            row["idea"], row["model"] = markdown(idea(place), _IDEA), markdown(entry.origin.model)
            row["certified"] = figures.day(entry.origin.certified)
            row["reverified"] = reverified(place.kept).plain
            rows.append(tuple(row[head] for head in heads))
        parts += [*_markdown_table(heads, rows), ""]
        parts += [f"{markdown(note)}\n" for note in notes(board, boards)]
    return "\n".join([*parts, f"{CAPTION[0].upper()}{CAPTION[1:]}.", ""]) if parts else "No entries.\n"


def models_markdown(standings: Sequence[Standing]) -> str:
    """Returns who wrote the kernels in GitHub's Markdown."""
    rows = [
        (markdown(one.model), str(one.entries), str(one.boards), str(one.firsts), markdown(_ranks(one)))
        for one in standings
    ]
    return "\n".join([*_markdown_table(("model", "entries", "boards", "firsts", "best rank on each board"), rows), ""])


def board_json(boards: Sequence[Board]) -> list[dict[str, object]]:
    """Returns what `leaderboard --json` says of each entry."""
    return [_entry_json(board, place) for board in boards for place in board.places]


def models_json(standings: Sequence[Standing]) -> list[dict[str, object]]:
    """Returns what `leaderboard --by model --json` says of each model."""
    return [
        {
            "model": one.model,
            "entries": one.entries,
            "boards": one.boards,
            "firsts": one.firsts,
            "best": [
                {
                    "problem": board.problem,
                    "arithmetic": board.arithmetic,
                    "device": board.machine.device,
                    "torch": board.machine.torch,
                    "triton": board.machine.triton,
                    "rank": rank,
                }
                for board, rank in one.best
            ],
        }
        for one in standings
    ]


def heading(board: Board) -> str:
    """Returns what a board is about, with all that parts it from others."""
    machine = board.machine
    return plain(f"{board.problem} in {board.arithmetic} on {machine.device} ({kind(machine)})")


def kind(machine: Machine) -> str:
    """Returns what parts boards on one device."""
    cores = "cores" if machine.device_type == "cpu" else "multiprocessors"
    versions = f"torch {machine.torch}" + (f", triton {machine.triton}" if machine.triton else "")
    return plain(f"{machine.cores} {cores}, {versions}")


def cells(place: Place) -> dict[str, str]:
    """Returns the figures of an entry by the heads of their columns."""
    entry = place.entry
    trial, near = entry.trial, entry.trial.worst_neighbour
    return {
        "rank": f"{place.rank}{'=' if place.tied else ''}",
        "kernel": entry.id[:SHORT_ID],
        "language": entry.candidate.language.value,
        "median": figures.time(trial.timing.median_us if trial.timing else None),
        "speedup": figures.speedup(trial.speedup),
        "over eager": figures.speedup(entry.over_eager),
        "worst shape": plain(f"{near.speedup.ratio:.2f}× {near.workload}") if near else figures.NOT_MEASURED,
        "roofline": figures.percent(trial.roofline_fraction),
        "accuracy": trial.accuracy_class.value if trial.accuracy_class else "none",
    }


def notes(board: Board, boards: Sequence[Board]) -> list[str]:
    """Returns what a reader has to know to read a board as it is meant."""
    found = [
        f"certified under {' and '.join(values)} ({field}): not told apart here"
        for field, values in board.unlike.items()
    ]
    alike = [other for other in boards if _title(other) == _title(board)]
    if any(other.statement != board.statement for other in alike):
        found.append("the problem was changed: kernels for what it was before, or after, have a board of their own")
    if any(apart(other.machine, board.machine) for other in alike):
        found.append(
            "other machines, or versions of torch or triton, have a board of their own: they have other baselines"
        )
    return [plain(note) for note in found]


def _title(board: Board) -> tuple[str, str, str]:
    return board.problem, board.arithmetic, board.machine.device


def idea(place: Place) -> str:
    """Returns the title of the idea that a kernel implements, or what it changed where it implements none."""
    return place.entry.words or figures.NOT_MEASURED


def reverified(kept: Kept) -> Text:
    """Returns when an entry was last judged again, and what it came to."""
    if not kept.again:
        return Text(figures.NOT_MEASURED)
    last = kept.again[-1]
    return Text(f"{figures.day(last.date)}: {last.finding.value}", style=_STYLES.get(last.finding, "yellow"))


def _ranks(one: Standing) -> str:
    """Returns the best ranks of a model, problem by problem."""
    said: list[str] = []
    for problem, group in groupby(one.best, key=lambda pair: pair[0].problem):
        places = (f"{rank} in {board.arithmetic} on {board.machine.device}" for board, rank in group)
        said.append(f"{problem}: {', '.join(places)}")
    return plain("; ".join(said))


def _link(name: str, folder: Path, base: Path) -> str:
    resolved, above = folder.resolve(), base.resolve()
    return f"[{name}]({resolved.relative_to(above).as_posix()})" if resolved.is_relative_to(above) else name


def _markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _entry_json(board: Board, place: Place) -> dict[str, object]:
    entry, trial, near = place.entry, place.entry.trial, place.entry.trial.worst_neighbour
    last = place.kept.again[-1] if place.kept.again else None
    return {
        "problem": board.problem,
        "statement": board.statement,
        "arithmetic": board.arithmetic,
        "device": trial.machine.device,
        "rank": place.rank,
        "tied": place.tied,
        "kernel": entry.id,
        "language": entry.candidate.language.value,
        "idea": entry.idea.title if entry.idea else None,
        "change": None if entry.idea else entry.candidate.change,
        "model": entry.origin.model,
        "median_us": trial.timing.median_us if trial.timing else None,
        "speedup": _speedup_json(trial.speedup),
        "over_eager": _speedup_json(entry.over_eager),
        "worst_neighbour": near.model_dump(mode="json") if near else None,
        "roofline_fraction": trial.roofline_fraction,
        "accuracy_class": trial.accuracy_class.value if trial.accuracy_class else None,
        "certified": entry.origin.certified.isoformat(),
        "run": entry.origin.run,
        "machine": trial.machine.model_dump(mode="json"),
        "reverified": last.model_dump(mode="json") if last else None,
        "entry": str(place.kept.folder),
    }


def _speedup_json(found: Speedup | None) -> dict[str, object] | None:
    return found.model_dump(mode="json") if found else None
