"""Which files a process may execute from: `/proc/<pid>/maps`, as the kernel tells it, whoever asks.

Not covered: what was mapped and is gone again; names inside a mount namespace that the reader is not in.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

ANONYMOUS = "[anonymous]"
"""Executable memory behind which there is no file: code that was generated at run time."""
UNMAPPED = "[unmapped]"
"""Where no code is mapped, or none any more."""
_DELETED = " (deleted)"
_ESCAPE = re.compile(r"\\(0[0-7]{2}|1[0-7]{2})")  # how the kernel writes a line break in a name


@dataclass(frozen=True)
class Executable:
    """One executable range of a process."""

    start: int
    end: int
    """First address behind the range."""
    name: str
    """Full path of the mapped file, `ANONYMOUS`, or the kernel's own name, such as `[vdso]`."""
    deleted: bool
    """Whether the file has no name any more: removed, replaced or a memfd."""


def executables(pid: int | str = "self") -> list[Executable]:
    """Returns the executable ranges of a process, by address.

    Raises:
        OSError: no such process, or not ours to look at.
    """
    found: list[Executable] = []
    text = Path(f"/proc/{pid}/maps").read_bytes().decode(errors="surrogateescape")
    for line in text.split("\n"):
        fields = line.split(maxsplit=5)
        if len(fields) < 5 or "x" not in fields[1]:
            continue
        name = _ESCAPE.sub(lambda code: chr(int(code[1], 8)), fields[5]) if len(fields) == 6 else ANONYMOUS
        deleted = name.endswith(_DELETED)
        name = ANONYMOUS if name.startswith(("[anon", "//anon")) else name.removesuffix(_DELETED)
        start, end = fields[0].split("-")
        found.append(Executable(int(start, 16), int(end, 16), name, deleted))
    return found


def name_at(address: int, ranges: Sequence[Executable]) -> str:
    """Returns the name of that range, of ranges by address, which an address lies in; `UNMAPPED`: in none."""
    index = bisect_right(ranges, address, key=attrgetter("start")) - 1
    return ranges[index].name if index >= 0 and address < ranges[index].end else UNMAPPED
