"""The control group of a guest: how much memory and how many processes it and all that it starts may have together.

A guest is born in its group: its zygote goes there before it forks, and on to the next guest's when that is done. A
process that is moved waits for a grace period of the kernel (5-25 ms seen, n = 6), one that is born waits for nothing.

    agentgen-<judge>-<its process namespace>-<zygote>-<number>    below the judge's own group, or beside it

Source: cgroups(7), the kernel's admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. Not covered: time on processors,
traffic to disks. Whoever is root in no jail can change its own group.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentgen.sandbox.hierarchies import Home, available, homes, read

PROCESSES = 4096
"""Threads and processes of one guest: OpenMP on two hundred cores, and a compiler's."""
LEAST_BYTES = 2 << 30
TRIES = 2000
"""To remove a group, in some milliseconds more than as many."""
_NAME = re.compile(r"agentgen-(\d+)-(\d+)-(\d+)-\d+")


@dataclass(frozen=True)
class Group:
    """The group of one guest; none, where the kernel refuses it."""

    folders: tuple[Path, ...]
    """One in each hierarchy."""
    words: str
    """What it limits, or why there is none."""

    @property
    def starved(self) -> bool:
        """Whether the kernel has ended a process in it for want of memory."""
        said = [read(folder / name) for folder in self.folders for name in ("memory.events", "memory.oom_control")]
        return any(re.search(r"^oom_kill [1-9]", one, re.MULTILINE) for one in said)

    def message(self) -> dict[str, object]:
        """Returns what the zygote tells of it."""
        return {"groups": [str(folder) for folder in self.folders], "cgroup": self.words}

    def remove(self) -> None:
        """Ends what is left in it, and removes it. Where a zygote could not leave, it is kept until that has ended."""
        for folder in self.folders:
            _remove(folder, spared=int(folder.name.split("-")[3]))


class Groups:
    """Makes the groups of one zygote, which this process is."""

    def __init__(self, memory_bytes: int | None, processes: int) -> None:
        """Takes the limits; None: half of what is available. Removes what dead judges have left."""
        self._why = "there is no controller of memory or processes"
        try:
            self._homes = homes()
        except OSError as error:
            self._homes, self._why = [], _why(error)
        self._limits = {"memory": memory_bytes or max(available(self._homes) // 2, LEAST_BYTES), "pids": processes}
        self._made = 0

    def enter_next(self) -> Group:
        """Takes this process to a new group. A hierarchy that refuses is not asked again."""
        self._made += 1
        name = f"agentgen-{os.getppid()}-{_namespace()}-{os.getpid()}-{self._made}"
        folders: list[Path] = []
        for home in tuple(self._homes):
            try:
                place = _place(home)
                if self._made == 1:
                    sweep([place])
                folders.append(_enter(place / name, home, self._limits))
            except OSError as error:
                self._homes.remove(home)
                self._why = _why(error)
                with contextlib.suppress(OSError):
                    _write(home.own / "cgroup.procs", "0")  # away from the last guest's, which is to be removed
        return Group(tuple(folders), self._words())

    def _words(self) -> str:
        there = {name for home in self._homes for name in home.controllers}
        memory = f"memory {round(self._limits['memory'] / 2**30, 1):g} GiB"
        words = [word for name, word in (("memory", memory), ("pids", "pids")) if name in there]
        return f"cgroup: {', '.join(words)}" if words else f"no cgroup: {self._why}"


def enter(group: Iterable[Path]) -> None:
    """Takes this process to a group, given by its folders.

    Raises:
        OSError: the kernel refuses.
    """
    for folder in group:
        _write(folder / "cgroup.procs", "0")


def sweep(places: Iterable[Path]) -> None:
    """Removes groups whose judge or zygote is gone, with all in them but a zygote: that of a judge which was killed is
    removing its guests' folder at that moment (which stayed, where a judge beside it started then; seen in CI). Groups
    of other process namespaces are left alone: whether theirs live cannot be seen from here."""
    for place in places:
        for folder in place.glob("agentgen-*"):
            if named := _NAME.fullmatch(folder.name):
                judge, namespace, zygote = map(int, named.groups())
                if namespace == _namespace() and not (_alive(judge) and _alive(zygote)):
                    _remove(folder, spared=zygote)


def _place(home: Home) -> Path:
    """Returns where groups can be made. In version 2 a group that holds processes, as our own does, cannot give its
    children controllers unless it is the root (EBUSY); the one above it holds none, and does if ours has them."""
    if not home.unified:
        return home.own
    beside = home.own.parent
    if home.controllers <= set(read(beside / "cgroup.subtree_control").split()):
        return beside
    if not home.controllers <= set(read(home.own / "cgroup.subtree_control").split()):
        _write(home.own / "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(home.controllers)))
    return home.own


def _enter(folder: Path, home: Home, limits: dict[str, int]) -> Path:
    folder.mkdir()
    try:
        if "memory" in home.controllers:
            memory = limits["memory"]
            _write(folder / ("memory.max" if home.unified else "memory.limit_in_bytes"), str(memory))
            with contextlib.suppress(FileNotFoundError):  # a kernel that counts no swap. Version 1 counts both together
                swap = ("memory.swap.max", 0) if home.unified else ("memory.memsw.limit_in_bytes", memory)
                _write(folder / swap[0], str(swap[1]))
        if "pids" in home.controllers:
            _write(folder / "pids.max", str(limits["pids"]))
        _write(folder / "cgroup.procs", "0")
    except OSError:
        _remove(folder)
        raise
    return folder


def _remove(folder: Path, spared: int = 0) -> None:
    for _ in range(TRIES):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # EBUSY: processes that live, or (version 1) that nobody has waited for
            inside = set(map(int, read(folder / "cgroup.procs").split())) - {0}  # to kill 0 is to kill ourselves
            if spared in inside and _alive(spared):
                return
            _end(folder, inside)
            time.sleep(0.001)


def _end(folder: Path, inside: Iterable[int]) -> None:
    for name, word in (("pids.max", "0"), ("cgroup.kill", "1")):  # the second since Linux 5.14, in version 2
        with contextlib.suppress(OSError):
            _write(folder / name, word)
    for pid in inside:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _why(error: OSError) -> str:
    return "the judge's own holds processes" if error.errno == errno.EBUSY else str(error.strerror).lower()


def _write(path: Path, words: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)  # never O_CREAT: of a file that is not there the kernel makes EACCES
    try:
        os.write(descriptor, words.encode())
    finally:
        os.close(descriptor)


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _alive(pid: int) -> bool:
    fields = read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return bool(fields) and fields[0] not in "ZX"
