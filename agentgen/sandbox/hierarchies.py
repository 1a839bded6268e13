"""Where a process is in the kernel's hierarchies of control groups: one of version 2, or several of version 1, or both.

Source: cgroups(7), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_CONTROLLERS = frozenset({"memory", "pids"})


@dataclass(frozen=True)
class Home:
    """The group that this process was started in, in one hierarchy."""

    own: Path
    controllers: frozenset[str]
    """Of those that we use."""
    unified: bool
    """Version 2."""


def homes(process: Path = Path("/proc/self")) -> list[Home]:
    """Returns where this process is, in each hierarchy with a controller that we use.

    Raises:
        OSError: this kernel does not say.
    """
    paths: dict[str, str] = {}
    for line in (process / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), path)  # that of version 2 has no name
    found: list[Home] = []
    for line in (process / "mountinfo").read_text().splitlines():
        mount, _, system = line.partition(" - ")
        root, point = mount.split()[3:5]
        kind, *_, options = system.split()
        here = ("",) if kind == "cgroup2" else options.split(",") if kind == "cgroup" else ()
        path = next((paths[name] for name in here if name in paths), "..")
        if ".." in [*path.split("/"), *os.path.relpath(path, root).split("/")]:
            continue  # another file system, or a part of this one where we are not
        own = Path(point, os.path.relpath(path, root))
        offered = read(own / "cgroup.controllers").split() if kind == "cgroup2" else here
        taken = frozenset[str]().union(*(home.controllers for home in found))
        if controllers := _CONTROLLERS & set(offered) - taken:
            found.append(Home(own, controllers, kind == "cgroup2"))
    return found


def available(places: Iterable[Home]) -> int:
    """Returns how much memory this process and all that it starts could have, in bytes."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    amounts = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    for home in places:
        for folder in (home.own, *home.own.parents):
            said = read(folder / ("memory.max" if home.unified else "memory.limit_in_bytes")).strip()
            amounts += [int(said)] if said.isdigit() else []  # "max", or not there: in the root, and above it
    return min(amounts, default=0)


def read(path: Path) -> str:
    """Returns the words of a file of the kernel's; none where it is not there."""
    try:
        return path.read_text()
    except OSError:
        return ""
