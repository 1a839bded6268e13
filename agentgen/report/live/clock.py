"""What goes on at the moment, and for how long: a row below the lines of a command that has no tree to show."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from agentgen.report import figures
from agentgen.report.live.display import Kind
from agentgen.report.live.tree import row
from agentgen.report.plain import plain

_LONGEST: Final = 36
"""Characters of a row before its clock: in one that a narrowed terminal has folded, the upper part would stay."""


@contextmanager
def clock(console: Console, kind: Kind) -> Generator[Callable[[str], None]]:
    """Yields what is told what begins; shows it in a live display, else nothing."""
    if kind != "live":
        yield lambda _: None
        return
    begun: tuple[str, float] | None = None

    def drawn() -> Text:
        if (now := begun) is None:
            return Text()
        return row(f"{now[0]} … {figures.clock(time.monotonic() - now[1])}", "dim")

    with Live(console=console, get_renderable=drawn, refresh_per_second=1, transient=True) as live:

        def begin(text: str) -> None:
            nonlocal begun
            begun = plain(text, _LONGEST), time.monotonic()
            live.refresh()

        yield begin


@contextmanager
def stages(console: Console, kind: Kind) -> Generator[Callable[[str], None]]:
    """Yields what a judge tells its stages to: each is a line, in a live display once it is over and with its clock."""
    with clock(console, kind) as begin:
        before: tuple[str, float] | None = None

        def over() -> None:
            if before and kind == "live":
                console.print(f"{before[0]} {figures.clock(time.monotonic() - before[1])}", style="dim")

        def on_stage(stage: str) -> None:
            nonlocal before
            if kind == "plain":
                console.print(f"{stage} …", style="dim")
            over()
            before = plain(stage), time.monotonic()
            begin(stage)

        yield on_stage
        over()
