"""stdout and stderr of the process: what becomes of words that cannot be written.

Exit code 1 says that a kernel was rejected: a full disk under a log, a reader that has gone or a stream that was closed
must not end with that, in whichever library the writing fails.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from agentgen.errors import StoreUnavailable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDOUT, STDERR = 1, 2


class Answers(io.FileIO):
    """stdout: without the answer nothing was answered."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Raises StoreUnavailable where it cannot be written; what is written after that goes nowhere."""
        try:
            return super().write(data)
        except OSError as error:
            _nowhere(STDOUT)
            gone = isinstance(error, BrokenPipeError)
            why = "whoever read it has gone" if gone else f"{error.strerror}"
            raise StoreUnavailable(f"stdout cannot be written: {why}") from error


class Words(io.FileIO):
    """stderr: words that nobody can read change nothing of what is found."""

    def write(self, data: ReadableBuffer, /) -> int:
        with suppress(OSError):
            return super().write(data)
        _nowhere(STDERR)  # also for the processes that are started from now on
        return memoryview(data).nbytes


def guard() -> None:
    """Has `sys.stdout` and `sys.stderr` fail as these two do."""
    for number in (0, STDOUT, STDERR):
        _occupy(number)
    sys.stdout = _text(Answers(STDOUT, "w", closefd=False), sys.stdout, "strict")
    sys.stderr = _text(Words(STDERR, "w", closefd=False), sys.stderr, "backslashreplace")


def _occupy(number: int) -> None:
    """Opens a descriptor that was closed, so that no database gets its number: nobody can write to it still."""
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, os.O_RDONLY)  # the lowest that is free


def _text(raw: io.FileIO, like: TextIO | None, errors: str) -> TextIO:
    """Returns a stream as Python would have opened it; `like` is None where it was closed."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding if like else "utf-8",
        errors=(like and like.errors) or errors,
        line_buffering=raw.isatty() or raw.fileno() == STDERR,
    )


def _nowhere(number: int) -> None:
    """Has what is left in buffers, and all that comes, written without a fault: it would fail again at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
