"""What this machine is, and what it reaches."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from agentgen.records.machine import Ceilings, Machine
from agentgen.records.problem import Arithmetic
from agentgen.sandbox.guest.candidate import set_arithmetic

DTYPE: dict[Arithmetic, torch.dtype] = {
    Arithmetic.FP32: torch.float32,
    Arithmetic.TF32: torch.float32,
    Arithmetic.FP16: torch.float16,
    Arithmetic.BF16: torch.bfloat16,
}

DATASHEET_BYTES_PER_S = {
    "NVIDIA H200": 4.8e12,
    "NVIDIA H100 80GB HBM3": 3.35e12,
    "NVIDIA A100-SXM4-80GB": 2.039e12,
    "NVIDIA A100-SXM4-40GB": 1.555e12,
    "NVIDIA B200": 8.0e12,
    "NVIDIA L40S": 0.864e12,
}
"""Peak memory bandwidth by the vendors' datasheets: no honest kernel moves its bytes faster."""


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


def architecture(machine: Machine) -> str | None:
    """Returns the name a compiler knows the GPU by, e.g. `sm_90a`; None for a CPU."""
    if machine.compute_capability is None:
        return None
    number = machine.compute_capability.replace(".", "")
    return f"sm_{number}a" if int(number) >= 90 else f"sm_{number}"


def ceilings(device: str, arithmetics: Iterable[Arithmetic]) -> Ceilings:
    """Measures the copy bandwidth and the matrix rate per arithmetic on random data: the best of 9, because a ceiling
    is what the device can do, not what it usually does beside other work.

    0.6 s on a 2-core CPU, 0.3 s on an H200.
    """
    on_gpu = device != "cpu"
    words = (1 << 28) if on_gpu else (1 << 25)
    source = torch.randn(words, device=device)
    target = torch.empty_like(source)
    copy_s = _best_s(lambda: target.copy_(source), on_gpu)
    # On a CPU the best size differs from library to library and machine to machine.
    sizes = (8192,) if on_gpu else (512, 1024, 1536)
    rates = {arithmetic: max(_matmul_rate(device, arithmetic, size) for size in sizes) for arithmetic in arithmetics}
    return Ceilings(copy_bytes_per_s=2 * source.nbytes / copy_s, matmul_flops_per_s=rates)


def bandwidth_limit(machine: Machine, measured: Ceilings) -> float:
    """Returns bytes per second that no kernel exceeds: the datasheet's, else 1.5 times what a copy reached."""
    return DATASHEET_BYTES_PER_S.get(machine.device, 1.5 * measured.copy_bytes_per_s)


def _matmul_rate(device: str, arithmetic: Arithmetic, size: int) -> float:
    set_arithmetic(arithmetic.value)
    a = torch.randn(size, size, device=device).to(DTYPE[arithmetic])
    b = torch.randn(size, size, device=device).to(DTYPE[arithmetic])
    return 2 * size**3 / _best_s(lambda: a @ b, device != "cpu")


def _best_s(call: Callable[[], object], on_gpu: bool) -> float:
    times: list[float] = []
    for _ in range(9):
        if on_gpu:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            call()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 1e3)
        else:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return min(times)


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
