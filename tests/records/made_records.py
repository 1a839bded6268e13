"""Records as most tests want them. What a test is about it names; the rest is as on any machine."""

from __future__ import annotations

from datetime import UTC, datetime

from agentgen.records.candidate import Language
from agentgen.records.machine import Ceilings, Machine, Target
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.records.run import Plan, Run
from agentgen.records.trial import Clock, Speedup, Timing

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
REFERENCE = """
class Model: ...
def get_inputs(): ...
def get_init_inputs(): ...
"""


def cpu(device: str = "AMD EPYC 9554", **fields: object) -> Machine:
    known = {"device_type": "cpu", "device": device, "cores": 2, "memory_bytes": 8 << 30}
    versions = {"last_level_cache_bytes": 32 << 20, "torch": "2.13.0", "triton": None, "python": "3.11.7"}
    return Machine.model_validate({**known, **versions, **fields})


def gpu(device: str = "NVIDIA H200", **fields: object) -> Machine:
    known = {"device_type": "cuda", "device": device, "cores": 132, "memory_bytes": 150 << 30}
    driver = {"last_level_cache_bytes": 60 << 20, "compute_capability": "9.0", "driver": "580.159.04", "cuda": "13.0"}
    versions = {"torch": "2.11.0", "triton": "3.6.0", "python": "3.12.3"}
    return Machine.model_validate({**known, **driver, **versions, **fields})


def problem(name: str = "relu", **fields: object) -> Problem:
    known = {"name": name, "title": "Relu", "reference": REFERENCE, "arithmetic": Arithmetic.FP32}
    return Problem.model_validate({**known, "workloads": (Workload(name="main"),), **fields})


def target(of: Problem | None = None, machine: Machine | None = None, **fields: object) -> Target:
    """Returns a target without operations to count: memory bounds it."""
    asked = of or problem()
    known: dict[str, object] = {
        "problem": asked.name,
        "arithmetic": asked.arithmetic,
        "machine": machine or cpu(),
        "ceilings": Ceilings(copy_bytes_per_s=2e10, matmul_flops_per_s={asked.arithmetic: 1e11}),
        "constants": {},
        "inputs": (),
        "outputs": (),
        "parameters": {},
        "flops": 0,
        "bytes_moved": 1 << 20,
        "bound_us": 50.0,
        "bound_by": "memory",
        "baselines_us": {"eager": 100.0},
    }
    return Target.model_validate({**known, **fields})


def run(of: Problem | None = None, **fields: object) -> Run:
    """Returns a run on a CPU that nobody has looked at yet."""
    asked = of or problem()
    known: dict[str, object] = {
        "id": "20261122-120000-abcd",
        "problem": asked,
        "arithmetic": asked.arithmetic,
        "device": "cpu",
        "languages": (Language.CPP,),
        "models": ("mailbox",),
        "plan": Plan(),
        "created": NOON,
    }
    return Run.model_validate({**known, **fields})


def timing(median_us: float, low_us: float | None = None, high_us: float | None = None, **fields: object) -> Timing:
    """Returns a time with quartiles 1% apart from it, where no others are given."""
    times = {"median_us": median_us, "low_us": low_us or 0.99 * median_us, "high_us": high_us or 1.01 * median_us}
    known = {"clock": Clock.WALL, "calls_per_window": 4, "windows": 25, "guests": 1, "copy_us": 3.0}
    return Timing.model_validate({**times, **known, **fields})


def speedup(
    ratio: float,
    low: float | None = None,
    high: float | None = None,
    baseline: str = "eager",
    baseline_us: float = 200.0,
) -> Speedup:
    """Returns a speedup with an interval of 1%, where none is given."""
    ends = low if low is not None else 0.99 * ratio, high if high is not None else 1.01 * ratio
    faster = ends[0] > 1.01
    return Speedup(baseline=baseline, baseline_us=baseline_us, ratio=ratio, low=ends[0], high=ends[1], faster=faster)
