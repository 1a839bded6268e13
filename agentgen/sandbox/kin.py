"""What other processes a guest has: those that live, and the processor time of those that are gone.

Read from `/proc`, which the kernel writes. What the guest's descendants leave behind is adopted by its zygote, or
by process 1 of its namespace, so nothing gets away by starting a session of its own; nor by becoming its parent's child
(CLONE_PARENT), for all that is in its namespace is its own.

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
_STATE, _PPID, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM = 0, 1, 11, 12, 13, 14
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
    if guests[guest] != guest:
        inside = _namespace(guest)
        living += [pid for pid in _processes() if pid not in (guest, keeper) and inside and _namespace(pid) == inside]
    names = tuple(f"{_name(pid)} ({pid})" for pid in sorted(set(living)))
    return Kin(names, _children_s(guest) + _children_s(keeper), _ignores_children(guest))


@dataclass(frozen=True)
class Stopped:
    """What a guest did while it was stopped, in all of its pauses."""

    seconds: float = 0.0
    """How long they were."""
    worked_s: float = 0.0
    """Processor time that its threads used meanwhile, in ticks of 10 ms."""


def processor_s(pid: int) -> float:
    """Returns the processor time of all threads of a process, in seconds.

    Raises:
        OSError: it is gone.
    """
    fields = _fields(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _CLOCK_TICKS


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has come to effect, or the process is gone."""
    try:
        return _fields(pid)[_STATE] in "TtZX"
    except OSError:
        return True


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


def _namespace(pid: int) -> str:
    """Returns which namespace a process's ids are of; empty, where that is not shown or the process is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


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
