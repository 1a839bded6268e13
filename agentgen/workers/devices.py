"""The devices of this machine, and those that a command line names."""

from __future__ import annotations

import os
import re
from itertools import takewhile
from pathlib import Path

from agentgen.errors import BadInput, DeviceNotFound
from agentgen.records.candidate import Language
from agentgen.records.problem import DeviceType
from agentgen.records.run import Run

ALL_GPUS = "cuda:all"


def devices() -> tuple[str, ...]:
    """Returns the devices of this machine, GPUs first, as far as can be seen without torch."""
    gpus, shown = len(list(Path("/dev").glob("nvidia[0-9]*"))), visible()
    count = gpus if shown is None else min(gpus, len(shown))
    return (*(f"cuda:{position}" for position in range(count)), "cpu")


def visible() -> tuple[str, ...] | None:
    """Returns the GPUs that CUDA_VISIBLE_DEVICES names, in the order in which CUDA counts them; None: all there are."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is None:
        return None
    # What follows an entry that is none is hidden too (CUDA C++ Programming Guide, environment variables).
    return tuple(takewhile(lambda entry: entry not in ("", "-1"), (entry.strip() for entry in said.split(","))))


def physical(device: str) -> str:
    """Returns the name by which processes mean the same device, whatever numbers CUDA_VISIBLE_DEVICES shows them. One
    that names GPUs by their UUIDs has names of its own."""
    shown = visible()
    kind, _, number = device.partition(":")
    if shown is None or kind != "cuda" or not number.isdecimal() or int(number) >= len(shown):
        return device
    chosen = shown[int(number)]
    return f"cuda:{chosen}" if chosen.isdecimal() else chosen


def require_device(device: str) -> None:
    """Raises DeviceNotFound if `device` is not on this machine."""
    if device not in devices():
        raise DeviceNotFound(f"no {device} on this machine, which has {', '.join(devices())}; pass --device")


def device_type(device: str) -> DeviceType:
    """Returns the kind of a resolved device, or of several (which are of one)."""
    return "cpu" if device == "cpu" else "cuda"


def find_device(wanted: str, languages: tuple[Language, ...] = ()) -> str:
    """Returns the device to use: `cpu` or `cuda:N`.

    Args:
        wanted: `auto`, `cpu`, `cuda` or `cuda:N`.
        languages: that the candidates are in, if known: C++ ones run on a CPU.

    Raises:
        BadInput: no such kind of device, or several.
        DeviceNotFound: this machine has it not.
    """
    if "," in wanted or wanted == ALL_GPUS:
        raise BadInput(f"--device {wanted} names several devices, and one is wanted here")
    return find_devices(wanted, languages)[0]


def find_devices(
    wanted: str, languages: tuple[Language, ...] = (), here: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Returns the devices to use: one, or several GPUs.

    Args:
        wanted: as for `find_device`, or several with commas between them; `cuda:all` are all GPUs.
        languages: as for `find_device`.
        here: what there is. [default: as this machine has]

    Raises:
        BadInput: no such kind of device, one twice, or several kinds.
        DeviceNotFound: not all of them are here.
    """
    found = here or devices()
    if wanted == "auto":
        return ("cpu",) if languages and set(languages) == {Language.CPP} else found[:1]
    if wanted == ALL_GPUS:
        # Where there is none, the first of them is what is missing.
        wanted = ",".join(device for device in found if device != "cpu") or "cuda:0"
    named = tuple("cuda:0" if name.strip() == "cuda" else name.strip() for name in wanted.split(","))
    if unknown := [name for name in named if not re.fullmatch(r"cpu|cuda:(0|[1-9]\d*)", name)]:
        raise BadInput(f"unknown device {unknown[0]}: give auto, cpu or cuda:N")
    if len(set(named)) < len(named):
        raise BadInput(f"--device {wanted} names one device twice")
    if len({device_type(name) for name in named}) > 1:
        raise BadInput(f"--device {wanted} names two kinds of devices, and times are compared on one")
    if missing := [name for name in named if name not in found]:
        raise DeviceNotFound(f"no device {missing[0]} on this machine; it has {', '.join(found)}")
    return named


def run_devices(run: Run, wanted: str | None, here: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Returns the devices to judge a stored run on: those asked for, else those it was begun on, as far as they are
    here; where none of them is, all, so that whoever judges there finds it out.

    Raises:
        BadInput: what is asked for is of another kind than those.
        DeviceNotFound: what is asked for is not here.
    """
    if wanted is None:
        own, found = tuple(run.device.split(",")), here or devices()
        return tuple(device for device in own if device in found) or own
    chosen = find_devices(wanted, run.languages, here)
    if device_type(chosen[0]) != run.device_type:
        raise BadInput(f"run {run.id} is one for {run.device}: its candidates cannot be judged on {','.join(chosen)}")
    return chosen
