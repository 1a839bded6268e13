"""What is for people: stderr, so that stdout stays free for the answer."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from agentgen.report.plain import harmless

LOG_WIDTH = 140
"""Where no terminal tells a width: tables in a CI log or a file are not folded at 80."""


class _Screen(Console):
    """Lets nothing but rich itself control the terminal, in what is printed and in live displays."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)


def screen() -> Console:
    """Returns the console of this process. Nothing printed is read as markup, and no text controls the terminal:
    titles, sources and logs come from models and their kernels."""
    console = _Screen(stderr=True, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    return console
