"""What is for people: stderr, so that stdout stays free for the answer."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from agentgen.report.plain import harmless

LOG_WIDTH = 140
"""Where no terminal tells a width: tables in a CI log or a file are not folded at 80."""


class _Harmless(RenderHook):
    """Lets nothing but rich itself control the terminal. What a live display refreshes does not come by here."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Shown:
    renderable: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)


def screen() -> Console:
    """Returns the console of this process. Nothing printed is read as markup, and no text controls the terminal:
    titles, sources and logs come from models and their kernels."""
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    console.push_render_hook(_Harmless())
    if not console.is_terminal:
        console.width = LOG_WIDTH
    return console
