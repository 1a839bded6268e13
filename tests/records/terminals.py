"""A program in a terminal of its own, and what it paints there."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.cells import cell_len

import agentgen

OPENS, CLOSES = "\x1b[?1049h", "\x1b[?1049l"
HIDES, SHOWS = "\x1b[?25l", "\x1b[?25h"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
_ROW = re.compile(r"\x1b\[(\d+);1H")
_SETTINGS = re.compile(r"\x1b\[H|\x1b\[\?25[hl]|\x1b\[\?7[hl]|\x1b\[0m")
Size = tuple[int, int]


class Terminal:
    """Reads what is written to a pseudo-terminal, with the time."""

    def __init__(self, columns: int, rows: int) -> None:
        self._master, self.slave = os.openpty()
        self.chunks: list[tuple[float, bytes]] = []
        self.resize(columns, rows)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._master, 1 << 16):
                self.chunks.append((time.monotonic(), data))
        except OSError:  # nobody has it open any more
            return

    @property
    def said(self) -> str:
        """All that was written so far."""
        return b"".join(data for _, data in list(self.chunks)).decode(errors="replace")

    @property
    def quiet(self) -> bool:
        """Whether nothing was written for a while, so that the last picture is whole."""
        return bool(self.chunks) and time.monotonic() - self.chunks[-1][0] > 0.15

    def resize(self, columns: int, rows: int) -> None:
        """Gives the window another size; the kernel signals whoever has the terminal."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """Ends the terminal, once all was read."""
        os.close(self.slave)
        self._reader.join(10)
        os.close(self._master)


@contextmanager
def terminal(columns: int, rows: int) -> Generator[Terminal]:
    """Yields a terminal for this process to write to."""
    opened = Terminal(columns, rows)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def program_in(
    columns: int, rows: int, *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> Generator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """Runs `agentgen ARGUMENTS` in a terminal."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTGEN_", "OPENAI_"))}
    root = str(Path(agentgen.__file__).parents[1])
    with terminal(columns, rows) as opened:
        started = subprocess.Popen(
            [sys.executable, "-c", "from agentgen.cli.main import main; main()", *arguments],
            cwd=folder,
            env={**inherited, "PYTHONPATH": root, "TERM": "xterm-256color", **(environment or {})},
            stdin=opened.slave,
            stdout=opened.slave,
            stderr=opened.slave,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell has it ignored in the background
        )
        try:
            yield opened, started
        finally:
            if started.poll() is None:
                started.send_signal(signal.SIGKILL)
            started.wait()


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Waits for something; fails where it does not come."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def frames(said: str) -> list[tuple[str, ...]]:
    """Returns the rows of each picture that was painted in a window; fails at anything that does more than to put a row
    over another: nothing is cleared or scrolled, no text reaches the terminal as a command.
    """
    found: list[tuple[str, ...]] = []
    for window in said.split(OPENS)[1:]:
        painted = _SETTINGS.sub("", STYLE.sub("", window.split(CLOSES)[0]))
        rows: list[str] = []
        head, *parts = _ROW.split(painted)
        assert not head
        for number, text in zip(parts[::2], parts[1::2], strict=True):
            assert text.isprintable(), text
            if int(number) == 1 and rows:
                found.append(tuple(rows))
                rows = []
            rows.append(text)
            assert len(rows) == int(number)
        found += [tuple(rows)] if rows else []
    return found


def size_of(frame: tuple[str, ...]) -> Size:
    """Returns columns and rows of a picture, each row of which is as wide as all."""
    (columns,) = {cell_len(text) for text in frame}
    return columns, len(frame)
