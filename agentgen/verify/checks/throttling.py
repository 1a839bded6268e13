"""Was the device its own master? NVML's word on clocks, on reasons to lower them, and on who else was there."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from agentgen.verify.findings import NotGated, check

_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""nvmlClocksEventReason*: those that lower clocks under load. Idling and settings of the user are none."""
_EVERY_S = 0.02


@dataclass
class Watched:
    """What NVML said while a block ran."""

    error: str = ""
    samples: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])
    clocks_mhz: list[int] = field(default_factory=list[int])
    others: int = 0
    """Most processes that computed on the device besides the judge and its guest."""


@contextmanager
def watching(device: str, known: int) -> Generator[Watched]:
    """Samples NVML from a thread while the block runs.

    Args:
        device: `cpu` or `cuda:N`.
        known: Processes of ours on the device.
    """
    watched, stop = Watched(), threading.Event()
    handle = _open(device, watched)
    thread = threading.Thread(target=_sample, args=(handle, known, watched, stop), daemon=True)
    if handle is not None:
        thread.start()
    try:
        yield watched
    finally:
        stop.set()
        if handle is not None:
            thread.join()


def _open(device: str, watched: Watched) -> Any:
    if device == "cpu":
        watched.error = "a CPU has no NVML"
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        watched.error = f"NVML refuses: {error}"
        return None


def _sample(handle: Any, known: int, watched: Watched, stop: threading.Event) -> None:
    import pynvml

    while not stop.wait(_EVERY_S):
        try:
            bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
            watched.clocks_mhz.append(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))
        except pynvml.NVMLError as error:
            watched.error = f"NVML refuses: {error}"
            return
        watched.reasons.update(name for bit, name in _REASONS.items() if bits & bit)
        with contextlib.suppress(pynvml.NVMLError):  # containers may hide processes
            running = len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
            watched.others = max(watched.others, running - known)
        watched.samples += 1


@check("throttling")
def unthrottled(watched: Watched) -> str | NotGated:
    """Catches times that say more about a hot, capped or shared device than about the kernel: reasons for lower clocks
    and other processes, as NVML saw them during the second measurement. Reported: both sides of a ratio suffer alike.

    Does not catch: what lasts less than 20 ms, and processes that a container hides.
    """
    if not watched.samples:
        return NotGated(f"skipped: {watched.error or 'no sample was taken'}")
    clocks = f"SM clock {min(watched.clocks_mhz)} to {max(watched.clocks_mhz)} MHz in {watched.samples} samples"
    found = [f"{name} in {count}" for name, count in watched.reasons.items()]
    found += [f"{watched.others} other processes on the device"] if watched.others > 0 else []
    if found:
        return NotGated(f"reported: {', '.join(found)}; {clocks}")
    return f"no reason for lower clocks, nobody else on the device; {clocks}"
