"""What this machine is."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from pathlib import Path
from typing import Any

import torch

from agentgen.records.machine import Machine


def describe(device: str) -> Machine:
    """Returns the machine record of `device`."""
    versions: dict[str, Any] = {
        "torch": str(torch.__version__),
        "triton": _triton_version(),
        "python": platform.python_version(),
    }
    if device == "cpu":
        return Machine(
            device_type="cpu",
            device=_cpu_name(),
            cores=len(os.sched_getaffinity(0)),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            last_level_cache_bytes=_cpu_cache_bytes(),
            **versions,
        )
    properties = torch.cuda.get_device_properties(device)
    return Machine(
        device_type="cuda",
        device=properties.name,
        cores=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        last_level_cache_bytes=properties.L2_cache_size,
        compute_capability=f"{properties.major}.{properties.minor}",
        driver=_driver_version(),
        cuda=torch.version.cuda,
        **versions,
    )


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def _cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _cpu_cache_bytes() -> int:
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KM])\s*", path.read_text())
        if match:
            sizes.append(int(match[1]) << (10 if match[2] == "K" else 20))
    return max(sizes)


def _driver_version() -> str | None:
    with contextlib.suppress(OSError):
        match = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", Path("/proc/driver/nvidia/version").read_text())
        return match[1] if match else None
    return None
