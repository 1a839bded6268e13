"""`agentgen report`: a run as one HTML file that opens anywhere, without a server or a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import Json
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.errors import BadInput
from agentgen.report.page.page import render
from agentgen.report.solution import best_file, read, solution_json
from agentgen.search.history import became
from agentgen.search.tree import Tree

NAME = "report.html"

Html = Annotated[Path | None, Parameter(name="--html", help="Where to write it. [default: report.html in its folder]")]


def report(run: str, /, *, html: Html = None, json: Json = False) -> int:
    """Write the page of a run, as it stands now.

    Args:
        run: Id of a run, `latest`, or a run's folder.
    """
    settings = config.here(Layer())
    with wiring.ledger(settings) as ledger:
        known, settings = wiring.find_run(settings, ledger, run)
        found = read(ledger, known.id)
        letters = tuple(ledger.letters(known.id))
        ideas = became(Tree.read(ledger, known))
        page = render(found, ideas, letters, ledger.ended(known.id))
    folder = wiring.run_folder(settings, known)
    file = html or folder / NAME
    size = _write(file, page)
    screen().print(f"page: {file} ({size / 1000:.0f} kB, {len(found.candidates)} candidates)", soft_wrap=True)
    if json:
        kernel = best_file(found, folder)
        told = solution_json(found, ideas, kernel if kernel and kernel.is_file() else None, None)
        answer({**told, "html": str(file), "bytes": size, "candidates": len(found.candidates)})
    return 0


def _write(file: Path, page: str) -> int:
    """Writes the page and returns its bytes."""
    encoded = page.encode()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded)
    except OSError as error:
        raise BadInput(f"the page cannot be written to {file}: {error.strerror or error}") from error
    return len(encoded)
