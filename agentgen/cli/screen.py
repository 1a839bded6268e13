"""What is for people: stderr, so that stdout stays free for the answer."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from agentgen.cli.options import DisplayName
from agentgen.errors import BadInput
from agentgen.report.live.display import is_live
from agentgen.report.plain import harmless

LOG_WIDTH = 140
"""Where no terminal tells a width: tables in a CI log or a file are not folded at 80."""


class Screen(Console):
    """Lets nothing but rich itself control the terminal, in what is printed and in live displays."""

    def __init__(self, display: DisplayName | None) -> None:
        """Takes how to show what goes on; None: as it suits.

        Raises:
            BadInput: there is no terminal for it.
        """
        # No colour, no escape sequence: what is in plain lines can be kept.
        colour = None if display == "plain" else "auto"
        super().__init__(stderr=True, markup=False, highlight=False, emoji=False, color_system=colour)
        if not self.is_terminal:
            self.width = LOG_WIDTH
        if display == "live" and not is_live(self):
            raise BadInput("--display live needs a terminal that can move its cursor, and stderr is none")
        self.display: DisplayName = display or ("live" if is_live(self) else "plain")
        """How to show what goes on."""

    @property
    def meanwhile(self) -> Console:
        """Where to print what is of interest only until the end."""
        return Console(quiet=True) if self.display == "none" else self

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)


def screen(display: DisplayName | None = None) -> Screen:
    """Returns the console of this process. Nothing printed is read as markup, and no text controls the terminal:
    titles, sources and logs come from models and their kernels.

    Raises:
        BadInput: it cannot show what goes on as is asked.
    """
    return Screen(display)
