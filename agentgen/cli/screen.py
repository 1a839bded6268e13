"""What is for people: stderr, so that stdout stays free for the answer."""

from __future__ import annotations

from rich.console import Console

LOG_WIDTH = 140
"""Where no terminal tells a width: tables in a CI log or a file are not folded at 80."""


def screen() -> Console:
    """Returns the console of this process. Nothing printed is read as markup: titles and logs come from models."""
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    return console
