"""The leaderboard as files: `index.html`, and a page and the source of each kernel in `kernels/`.

Every page is complete in itself (`page.frame`); pages are linked by relative paths, so that the folder opens from a
disk as it does from a server. File names are made here: of what an entry says of itself they hold letters, digits and
dashes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agentgen.report import board as words
from agentgen.report.page.frame import Frame, frame
from agentgen.report.site import curves, kernel
from agentgen.report.site.curves import Saved
from agentgen.report.site.matrix import matrix
from agentgen.report.standings import Board, Place
from agentgen.store.entries import Kept

INDEX: Final = "index.html"
KERNELS: Final = "kernels"
_HERE: Final = Path(__file__).parent
_LONGEST: Final = 40
"""Characters of a problem's or a device's name in that of a file."""


def render(
    boards: Sequence[Board], saved: Sequence[Saved], left_out: Sequence[str], broken: Sequence[str]
) -> dict[str, bytes]:
    """Returns all files by their paths.

    Args:
        boards: all of them.
        saved: reports whose fast_p is drawn.
        left_out: why other reports have none.
        broken: what could not be read, a line each.
    """
    pages = _frame()
    names = _names([place.kept for board in boards for place in board.places])
    files: dict[str, bytes] = {}
    for board in boards:
        for place in board.places:
            name = names[place.kept.folder]
            source = place.entry.candidate.source.encode()
            files[f"{KERNELS}/{name}.py"] = source
            files[f"{KERNELS}/{name}.html"] = kernel.page(pages, board, place, f"{name}.py").encode()
    links = {folder: f"{KERNELS}/{name}.html" for folder, name in names.items()}
    index = pages.render(
        "index.html.j2",
        tiles=_tiles(boards),
        matrix=matrix(boards, links),
        boards=[(words.heading(board), [_row(place, links) for place in board.places]) for board in boards],
        notes=[words.notes(board, boards) for board in boards],
        caption=words.CAPTION,
        heads=words.NUMBERS,
        curves=curves.curves(saved),
        left_out=left_out,
        broken=broken,
        data="",
    )
    return {INDEX: index.encode(), **files}


def _frame() -> Frame:
    return frame(_HERE, ("base.css", "site.css"), ("theme.js", "code.js", "site.js"))


def _names(kept: Sequence[Kept]) -> dict[Path, str]:
    """Returns a name for the files of each entry."""
    found: dict[Path, str] = {}
    taken: set[str] = set()
    for one in kept:
        trial = one.entry.trial
        parts = (trial.problem, trial.arithmetic.value, trial.machine.device, one.entry.id)
        name = "-".join(filter(None, map(_plain, parts)))
        while name in taken:  # names that differ only in what a file's name does not show
            name += "x"
        taken.add(name)
        found[one.folder] = name
    return found


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text[:_LONGEST].lower()).strip("-")


def _tiles(boards: Sequence[Board]) -> list[tuple[str, str, str]]:
    places = [place for board in boards for place in board.places]
    if not places:
        return []
    machines = {board.machine.device for board in boards}
    models = {place.entry.origin.model for place in places}
    again = sum(bool(place.kept.again) for place in places)
    newest = max(place.entry.origin.certified for place in places)
    return [
        ("certified kernels", str(len(places)), f"the newest on {newest:%Y-%m-%d}"),
        ("problems", str(len({board.problem for board in boards})), f"on {len(boards)} boards"),
        ("devices", str(len(machines)), ", ".join(sorted(machines))),
        ("models", str(len(models)), "that wrote them"),
        ("reverified", f"{again} of {len(places)}", "judged again since"),
    ]


def _row(place: Place, links: dict[Path, str]) -> dict[str, str]:
    entry = place.entry
    return {
        **words.cells(place),
        "page": links[place.kept.folder],
        "idea": words.idea(place),
        "model": entry.origin.model,
        "certified": f"{entry.origin.certified:%Y-%m-%d}",
        "reverified": words.reverified(place.kept).plain,
    }
