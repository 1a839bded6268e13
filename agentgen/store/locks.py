"""A folder that one process at a time writes to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Has others wait who ask for the same folder, where the file system can lock one: what two find at once they would
    both change, and one of them in vain."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
