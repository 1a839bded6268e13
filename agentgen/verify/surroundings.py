"""What `agentgen doctor` tells of this machine that only a process with torch can see."""

from __future__ import annotations

import platform
import shutil

import torch

from agentgen import jit
from agentgen.errors import SandboxUnavailable
from agentgen.sandbox.process import ProcessSandbox
from agentgen.verify.machine import describe


def surroundings() -> dict[str, str]:
    """Returns name -> finding, in the order to show."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    found["triton"] = describe("cpu").triton or "missing: Triton candidates cannot be built"
    found["torch's CUDA"] = torch.version.cuda or "none: a CPU build of torch"
    count = torch.cuda.device_count()
    for index in range(count):
        gpu = describe(f"cuda:{index}")
        found[f"cuda:{index}"] = (
            f"{gpu.device}, {gpu.memory_bytes / 2**30:.0f} GiB, compute capability {gpu.compute_capability}"
        )
    if not count:
        found["GPU"] = "none that torch can use"
    cpu = describe("cpu")
    found["cpu"] = f"{cpu.device}, {cpu.cores} cores, {cpu.memory_bytes / 2**30:.0f} GiB"
    found["sandbox"] = _isolation()
    found["Docker"] = _docker()
    found["NVRTC"] = _nvrtc()
    found["nvcc"] = shutil.which("nvcc") or "not found: only load_inline needs it"
    found["g++"] = shutil.which("g++") or "not found: cpp candidates cannot be built"
    return found


def _isolation() -> str:
    sandbox = ProcessSandbox("cpu")
    try:
        return sandbox.isolation
    except SandboxUnavailable as error:
        return f"not usable: {error}"
    finally:
        sandbox.close()


def _docker() -> str:
    from agentgen.sandbox import container  # 0.2 s, only here

    try:
        return f"engine {container.engine()}"
    except SandboxUnavailable as error:
        return f"not usable: {error}"


def _nvrtc() -> str:
    try:
        report = jit.cuda('extern "C" __global__ void probe(int* x) { x[0] = 1; }', arch="sm_90a").report
    except (RuntimeError, OSError) as error:
        return f"not usable: {str(error).splitlines()[0]}"
    return f"works ({report[0]['registers']} registers for a probe on sm_90a)"
