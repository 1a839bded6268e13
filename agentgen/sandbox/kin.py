"""What other processes a guest has: those that live, and the processor time of those that are gone.

Read from `/proc`, which the kernel writes. What the guest's descendants leave behind is adopted by its zygote, or
by process 1 of its namespace, so nothing gets away by starting a session of its own.

Not covered: processes that a guest did not start (by a daemon of the system, over the network).
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PPID, _CHILDREN_USER, _CHILDREN_SYSTEM = 1, 13, 14
"""Places in `/proc/<pid>/stat` (proc(5)) after the name, which is in parentheses and may hold anything."""


@dataclass(frozen=True)
class Kin:
    """The other processes of a guest, at one moment."""

    living: tuple[str, ...] = ()
    """Their names and ids."""
    gone_s: float = 0.0
    """Processor time of those that ended and were waited for, since the guest's zygote began."""
    unseen: bool = False
    """Whether the guest ignores SIGCHLD: the kernel adds up no time of its children then."""


def kin_of(guest: int, guests: Mapping[int, int]) -> Kin:
    """Looks round once, in some milliseconds.

    Args:
        guest: Process id of a guest.
        guests: Of all guests of its zygote: by process id that of process 1 of its namespace, which adopts its orphans;
            its own where it has none, for the zygote adopts them then. The families of the others are not looked at.

    Raises:
        OSError: the guest is gone.
    """
    parent = int(_fields(guest)[_PPID])
    keeper = parent if guests[guest] == guest else guests[guest]
    families: dict[int, list[int]] = defaultdict(list)
    for pid in _processes():
        if (above := _parent(pid)) is not None:
            families[above].append(pid)
    living: list[int] = []
    ahead = [*families[guest], *(pid for pid in families[keeper] if pid not in guests)]
    while ahead:
        pid = ahead.pop()
        living.append(pid)
        ahead += families[pid]
    names = tuple(f"{_name(pid)} ({pid})" for pid in sorted(living))
    return Kin(names, _children_s(guest) + _children_s(keeper), _ignores_children(guest))


def children(pid: int) -> list[int]:
    """Returns the children of a process that have not been waited for. What its first thread has forked the kernel may
    list (CONFIG_PROC_CHILDREN); else, in some milliseconds, all processes are looked at."""
    if listed := _listed(pid):
        return listed
    return [other for other in _processes() if _parent(other) == pid]


def _listed(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()


def _parent(pid: int) -> int | None:
    """Returns a process's parent; None for one that is gone. One that ended and that its parent never waited for is
    still there: its time is in nobody's account."""
    try:
        fields = _fields(pid)
    except OSError:
        return None
    return None if fields[0] == "X" else int(fields[_PPID])


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "gone"


def _children_s(pid: int) -> float:
    fields = _fields(pid)
    return (int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])) / _CLOCK_TICKS


def _ignores_children(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)
    return False
