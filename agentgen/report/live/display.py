"""Where a run is seen: in a window of its own on a terminal, in plain lines, or not at all.

The window is the terminal's alternate screen, which is painted over in place: nothing is erased before it is written,
so nothing flickers, and what a resized terminal does to lines that are already there is over with the next picture. A
thread paints, ten times a second at most: after events, where the size has changed, and once a second for the clocks.
Events and drawing exclude each other; writing, which a terminal may hold up, holds up no event.

At the end, however it comes, the terminal is as it was, and the last picture stands in it, with what else was written
to stderr meanwhile.

Not covered: a program that is suspended (Ctrl-Z) leaves its window on the screen.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, Literal, TextIO

from rich.console import Console
from rich.region import Region
from rich.text import Text

from agentgen.records import events
from agentgen.records.run import Caps
from agentgen.report.live.lines import Lines
from agentgen.report.live.picture import Picture
from agentgen.report.plain import harmless

Kind = Literal["live", "plain", "none"]
Watch = Callable[[events.Event], None]

FRAME_S: Final = 0.1
"""Between two pictures at least. One of 50 rows takes 2 to 5 ms of a core, beside which a CPU kernel may be timed."""
STDERR: Final = 2
LONGEST_WORDS: Final = 20_000
"""Bytes of what was written to stderr meanwhile that are shown."""
_NO_WRAP: Final = "\x1b[?7l"
_WRAP: Final = "\x1b[?7h"
"""Whether a line that is too long goes on in the next row. Widths are rich's; a terminal may think otherwise."""


def nothing(_: events.Event) -> None:
    """Shows nothing."""


@contextmanager
def watching(console: Console, kind: Kind, title: str, caps: Caps, start_s: float) -> Generator[Watch]:
    """Yields what a search tells its events to; the display ends with the context, also by an exception.

    Args:
        console: where to show it.
        kind: how; `live` is for terminals (`is_live`) only.
        title: stands above.
        caps: of the run.
        start_s: when the command began, by the monotonic clock.
    """
    if kind == "live":
        with _Window(console, Picture(title, caps, start_s)).open() as watch:
            yield watch
    else:
        yield Lines(console) if kind == "plain" else nothing


def is_live(console: Console) -> bool:
    """Returns whether a console can show a window. What only claims to be a terminal (FORCE_COLOR) cannot."""
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal


class _Window:
    """Paints a picture until it is closed."""

    def __init__(self, console: Console, picture: Picture) -> None:
        self._console = console
        self._picture = picture
        self._lock = threading.Lock()  # for the picture
        self._changed = True
        self._over = threading.Event()

    @contextmanager
    def open(self) -> Generator[Watch]:
        """Has the terminal to itself."""
        console = self._console
        with _aside(console), ExitStack() as undo:
            undo.callback(self._leave)
            console.set_alt_screen(True)
            console.show_cursor(False)
            _write(console, _NO_WRAP)
            painter = threading.Thread(target=self._paint, name="display", daemon=True)
            painter.start()
            undo.callback(painter.join)
            undo.callback(self._over.set)
            yield self._take

    def _take(self, event: events.Event) -> None:
        with self._lock:
            self._picture.take(event, time.monotonic())
            self._changed = True

    def _drawn(self, width: int, height: int) -> Text:
        with self._lock:
            self._changed = False
            return self._picture.draw(width, height, time.monotonic())

    def _paint(self) -> None:
        shown: tuple[int, int, int] | None = None
        with suppress(OSError):  # the terminal is gone; who hears of that ends the program
            while not self._over.wait(FRAME_S):
                width, height = _size(self._console)
                now = width, height, int(time.monotonic())
                if self._changed or now != shown:
                    shown = now
                    self._console.update_screen(self._drawn(width, height), region=Region(0, 0, width, height))

    def _leave(self) -> None:
        with suppress(OSError):
            _write(self._console, _WRAP)
            self._console.set_alt_screen(False)
            self._console.show_cursor(True)
            width, height = _size(self._console)
            self._console.print(self._drawn(width, height - 1), width=width, no_wrap=True, overflow="ellipsis")


@contextmanager
def _aside(console: Console) -> Generator[None]:
    """Keeps what this process and its children write to stderr, a judge that dies for example, and writes the end of it
    when the window is closed. The console writes to the terminal all the while."""
    before = console.file
    with (
        tempfile.TemporaryFile() as kept,
        _again(before.fileno()) as terminal,
        _again(STDERR) as stderr,
    ):
        os.dup2(kept.fileno(), STDERR)
        console.file = terminal
        try:
            yield
        finally:
            console.file = before
            os.dup2(stderr.fileno(), STDERR)
            kept.seek(-min(LONGEST_WORDS, kept.seek(0, os.SEEK_END)), os.SEEK_END)
            stderr.write(harmless(kept.read().decode(errors="replace")))


@contextmanager
def _again(descriptor: int) -> Generator[TextIO]:
    """Opens for writing what a descriptor stands for; like sys.stderr, it takes every letter."""
    file = os.fdopen(os.dup(descriptor), "w", encoding=sys.stderr.encoding, errors="backslashreplace")
    try:
        yield file
    finally:
        with suppress(OSError):  # what is left to write has nowhere to go: the terminal is gone
            file.close()


def _write(console: Console, code: str) -> None:
    console.file.write(code)
    console.file.flush()


def _size(console: Console) -> tuple[int, int]:
    """Returns columns and rows of the window as it is now, whatever the environment says; where nothing tells, those
    that rich takes."""
    with suppress(OSError):
        size = os.get_terminal_size(console.file.fileno())
        if size.columns and size.lines:
            return size.columns, size.lines
    return console.size.width, console.size.height
