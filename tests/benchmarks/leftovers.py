"""What a judge and its guests could leave behind, counted: processes, descriptors, shared memory, folders, control
groups, memory of a GPU.

Judges and guests are told from others' by their temporary folder (`TMPDIR`), which is a soak's own; groups by the judge
in their names. Shared memory is that of the whole machine: other programs that leave files there are blamed on us.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path

from agentgen.sandbox.hierarchies import homes

SETTLE_S = 10.0
"""A guest's last process is waited for by its zygote, a killed judge's zygote ends by itself."""
GPU_MIB = 64
"""By which a GPU's used memory may differ."""
PROGRAM = "agentgen.verify.program"


@dataclass(frozen=True)
class Census:
    """What is there, by name."""

    processes: frozenset[str]
    descriptors: frozenset[str]
    shared_memory: frozenset[str]
    folders: frozenset[str]
    groups: frozenset[str]
    gpu_mib: int | None
    """Used by anyone; None: on a CPU."""

    def counts(self) -> dict[str, int | None]:
        """Returns how many of each."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: len(value) if isinstance(value, frozenset) else value for name, value in named.items()}

    def left_since(self, before: Census) -> list[str]:
        """Returns what is there now and was not before."""
        found: list[str] = []
        for name in ("processes", "descriptors", "shared_memory", "folders", "groups"):
            more = sorted(getattr(self, name) - getattr(before, name))
            found += [f"{name}: {one}" for one in more]
        if self.gpu_mib is not None and before.gpu_mib is not None and self.gpu_mib > before.gpu_mib + GPU_MIB:
            found.append(f"memory of the GPU: {self.gpu_mib} MiB, before {before.gpu_mib} MiB")
        return found


def census(temporary: Path, judges: Collection[int], device: str) -> Census:
    """Returns what is there.

    Args:
        temporary: Where this program and all that it starts keep what is temporary.
        judges: Process ids of the judges that this program has had.
        device: Whose memory is looked at.
    """
    # First: it leaves descriptors of its own open in this program, from the first census on.
    gpu_mib = None if device == "cpu" else _gpu_mib(int(device.partition(":")[2] or 0))
    return Census(
        processes=frozenset(f"{pid} {command}" for pid, command in processes(temporary).items()),
        descriptors=frozenset(_descriptors()),
        shared_memory=frozenset(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else frozenset(),
        folders=frozenset(os.listdir(temporary)),
        groups=frozenset(_groups(judges)),
        gpu_mib=gpu_mib,
    )


def settled(before: Census, temporary: Path, judges: Collection[int], device: str) -> Census:
    """Returns what is there as soon as it is no more than before, or after some seconds."""
    deadline = time.monotonic() + SETTLE_S
    while (now := census(temporary, judges, device)).left_since(before) and time.monotonic() < deadline:
        time.sleep(0.1)
    return now


def processes(temporary: Path) -> dict[int, str]:
    """Returns the commands of all processes but this one that keep what is temporary there, or are below this one."""
    found: dict[int, str] = {}
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's; a zombie has an empty environment
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            commands[pid] = " ".join((folder / "cmdline").read_text(errors="replace").split("\0"))[:120]
            if f"TMPDIR={temporary}" in (folder / "environ").read_text(errors="replace"):
                found[pid] = commands[pid]
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: commands.get(pid, "") for pid in {*found, *below} - {os.getpid()}}


def judges() -> list[int]:
    """Returns the process ids of this process's judges."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and PROGRAM in (folder / "cmdline").read_text().split("\0"):
                found.append(int(folder.name))
    return found


def usage(pid: int) -> dict[str, int]:
    """Returns what a judge holds: descriptors, threads, resident memory in MiB; nothing of one that is gone."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        return {
            "descriptors": descriptors,
            "threads": int(status["Threads"]),
            "resident_mib": int(status["VmRSS"].split()[0]) >> 10,
        }
    except (OSError, KeyError):
        return {}


def _descriptors() -> list[str]:
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was that of this listing
            found.append(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found


def _groups(judges: Collection[int]) -> list[str]:
    places = {place for home in homes() for place in (home.own, home.own.parent)}
    names = [folder.name for place in places for folder in place.glob("agentgen-*")]
    return [name for name in names if int(name.split("-")[1]) in judges]


def _gpu_mib(index: int) -> int:
    import pynvml

    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).used) >> 20
    finally:
        pynvml.nvmlShutdown()
