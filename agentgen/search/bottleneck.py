"""Which resource binds a timed kernel: memory, tensor cores, floating-point units, launches, or waiting (latency).

Inferred from what is measured of every trial: its time, the bytes and operations that the problem needs at least, the
rates that this device was measured to reach, and the device time of its kernels where a GPU has told it. No counter was
read. A kernel that moves more bytes than it must, or does other instructions than multiply-adds, looks like one that
waits; the words say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from agentgen.records.machine import Target
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Trial
from agentgen.search.facts import us
from agentgen.search.kernels import hints

_NEAR = 0.6
"""Share of a ceiling from which on that resource is said to bind. The ceilings are measured, and a library's kernels
reach 0.75 to 1 of them; what waits for something else is seldom above 0.5."""
_BEYOND_FP32 = 1.3
"""Over the rate of a matrix product in fp32; above it only tensor cores can be at work. A loop of nothing but
multiply-adds in registers was seen at 1.26 times that rate on an H200."""
_BEYOND_DRAM = 1.05
"""Over the copy rate; above it part of the bytes cannot have come from DRAM."""
_AT_FLOOR = 0.9
_LAUNCH_US = {"cuda": 3.0, "cpu": 5.0}
"""An empty kernel in a full queue takes 3 us of an H200; a parallel region of OpenMP some microseconds of a CPU."""
_BUSY = 0.6
"""Kernels that fill less of a call than this leave the rest of it to the gaps between them."""


_WAITS = {
    "cuda": "something waits (too few or stalled warps, dependent loads, barriers, a last wave) or more is done than "
    "must be (bytes read again or in part, bank conflicts, instructions that are no multiply-adds)",
    "cpu": "something waits (chains of dependent operations, cache misses, page faults of fresh memory, idle threads) "
    "or more is done than must be (lines read again or in part, scalar code, instructions that are no multiply-adds)",
}


class Resource(StrEnum):
    """What a kernel waits for most."""

    MEMORY = "memory"
    TENSOR_CORES = "tensor cores"
    FLOATING_POINT = "floating-point units"
    LAUNCH = "launches"
    LATENCY = "latency"


def bottleneck(target: Target, trial: Trial) -> Resource | None:
    """Returns what binds by these figures; None for a trial without a timing."""
    if trial.timing is None:
        return None
    shares = _shares(target, trial.timing.median_us)
    nearest = max(shares, key=lambda resource: shares[resource])
    if shares[nearest] >= _NEAR:
        return nearest
    return Resource.LAUNCH if _launches_bind(target, trial, trial.timing.median_us) else Resource.LATENCY


def bottleneck_lines(target: Target, trial: Trial) -> Iterator[str]:
    """Yields the floor, the rates that were reached, and what binds by them; nothing for a trial without a timing."""
    found = bottleneck(target, trial)
    if found is None or trial.timing is None:
        return
    time_us = trial.timing.median_us
    shares = _shares(target, time_us)
    times = time_us / target.bound_us if target.bound_us else 0.0
    yield f"- Floor: {us(target.bound_us)} us, by {target.bound_by}; the kernel takes {times:.3g} times that"
    must = target.bytes_moved / time_us / 1e3
    rates = f"{must:.4g} GB/s of the bytes it must move, {shares[Resource.MEMORY]:.0%} of the copy rate"
    units = [f"{share:.0%} of {_ceiling(unit, target)}" for unit, share in shares.items() if unit != Resource.MEMORY]
    if units:
        rates += f"; {target.flops / time_us / 1e6:.4g} TFLOP/s, {' and '.join(units)}"
    yield f"- Reached: {rates}"
    yield f"- Binds, by these figures: {_words(found, shares.get(found, 0.0), target, trial)}"


def _shares(target: Target, time_us: float) -> dict[Resource, float]:
    """Returns how much of each ceiling is used, counting the least work there is."""
    found = {Resource.MEMORY: 1e6 * target.bytes_moved / target.ceilings.copy_bytes_per_s / time_us}
    rates = target.ceilings.matmul_flops_per_s
    if not target.flops:
        return found
    reached = 1e6 * target.flops / time_us
    own = reached / rates[target.arithmetic]
    if target.machine.device_type == "cpu":
        return {**found, Resource.FLOATING_POINT: own}
    if target.arithmetic is not Arithmetic.FP32:
        return {**found, Resource.TENSOR_CORES: own}
    if own <= _BEYOND_FP32:
        found[Resource.FLOATING_POINT] = own
    if _splitting_pays(target) or (Arithmetic.TF32 in rates and own > _BEYOND_FP32):
        found[Resource.TENSOR_CORES] = 3 * reached / rates[Arithmetic.TF32]
    return found


def _splitting_pays(target: Target) -> bool:
    """Whether three TF32 products take less time than one in fp32: not so on compute capability 8.6 and 8.9."""
    rates = target.ceilings.matmul_flops_per_s
    return Arithmetic.TF32 in rates and rates[Arithmetic.TF32] > 3 * rates[Arithmetic.FP32]


def _ceiling(unit: Resource, target: Target) -> str:
    if unit is Resource.TENSOR_CORES and target.arithmetic is Arithmetic.FP32:
        return "what three TF32 products for each in fp32 would allow"
    return f"a large matrix product in {target.arithmetic.value}"


def _launches_bind(target: Target, trial: Trial, time_us: float) -> bool:
    """Whether starting kernels, one at least, or the gaps between several, may take half of a call."""
    launches = sum(kernel.launches for kernel in trial.profile) or 1.0
    if launches * _LAUNCH_US[target.machine.device_type] >= 0.5 * time_us:
        return True
    return launches > 1 and sum(kernel.us for kernel in trial.profile) < _BUSY * time_us


def _words(found: Resource, share: float, target: Target, trial: Trial) -> str:
    """Returns what binds, and what would help; `share` is that of its ceiling."""
    if found is Resource.LAUNCH:
        return _launch_words(target, trial)
    if found is Resource.LATENCY:
        seen = ", ".join(hints(trial))
        return f"latency. No ceiling is near, so {_WAITS[target.machine.device_type]}" + (
            f". Seen: {seen}" if seen else ""
        )
    if found is Resource.MEMORY:
        if share > _BEYOND_DRAM:
            return "memory, by bytes that come in part from the cache: DRAM is not the limit"
        if share >= _AT_FLOOR:
            return "memory, at its floor: little is left to win"
        return "memory. Bytes read twice or in part, or a stream with gaps, are what is left"
    if found is Resource.FLOATING_POINT and _splitting_pays(target):
        return (
            "floating-point units, if its products are fp32 multiply-adds: then three TF32 products on tensor cores "
            "are the way on; if they are on tensor cores already, latency"
        )
    return f"{found.value}. Fewer or cheaper operations help, or a pipeline that feeds them without gaps"


def _launch_words(target: Target, trial: Trial) -> str:
    launches = sum(kernel.launches for kernel in trial.profile)
    if launches > 1:
        return (
            f"launches ({launches:.3g} a call). Starting kernels, and the gaps between them, take much of a call; "
            "fewer help"
        )
    if target.machine.device_type == "cuda":
        return "launch. One kernel takes some 3 us however little it does; little is left to win"
    return "the call itself. Calls from Python and parallel regions take some microseconds each; little is left to win"
