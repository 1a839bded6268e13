"""What is known of a candidate's kernels, in a line each: the compiler's figures, and where a GPU told them, the time
that each took at the timed workload and how much of a multiprocessor it fills."""

from __future__ import annotations

from collections.abc import Iterator

from agentgen.records.machine import Machine
from agentgen.records.trial import BuildReport, KernelProfile, Trial
from agentgen.search.occupancy import Occupancy, occupancy

_BUILDS = 12
_PROFILES = 6
_NAME_CHARACTERS = 60
_FEW = 0.25
"""Share of the warps that a multiprocessor can hold. Kernels on tensor cores do well with less, and which those are is
not known: the hint says so."""


def build_lines(trial: Trial) -> Iterator[str]:
    """Yields registers, spills and static shared memory as the compiler told them."""
    lines = [
        f"- Kernel `{' '.join(build.kernel.split())}`: {known}" for build in trial.build if (known := _known(build))
    ]
    yield from lines[:_BUILDS]
    if len(lines) > _BUILDS:
        yield f"- and {len(lines) - _BUILDS} further kernels"


def profile_lines(trial: Trial) -> Iterator[str]:
    """Yields the kernels that ran, the longest first: device time, launch, and what of it fits on a multiprocessor."""
    if trial.profile:
        yield "- On the device, as told by an instrumented guest beside the timed one:"
    for kernel in trial.profile[:_PROFILES]:
        name = kernel.kernel if len(kernel.kernel) <= _NAME_CHARACTERS else f"{kernel.kernel[:_NAME_CHARACTERS]}..."
        each = f"{kernel.us / kernel.launches:.4g} us each" if kernel.launches else "no launch"
        parts = [f"{kernel.launches:.3g} a call, {each}, {kernel.share:.0%} of device time", *_launch(kernel)]
        yield f"  - `{name}`: {'; '.join([*parts, *_fit(kernel, trial.machine)])}"
    if len(trial.profile) > _PROFILES:
        rest = sum(kernel.share for kernel in trial.profile[_PROFILES:])
        yield f"  - and {len(trial.profile) - _PROFILES} further kernels, {rest:.0%}"


def hints(trial: Trial) -> Iterator[str]:
    """Yields what may make a kernel wait: spills of kernels that ran, few blocks, few warps of the longest one."""
    ran = {kernel.kernel for kernel in trial.profile}
    spilled = sum(build.spill_bytes or 0 for build in trial.build if not ran or build.kernel in ran)
    if spilled:
        yield f"{spilled} bytes of registers are spilled"
    for kernel in trial.profile[:1]:
        if kernel.blocks and kernel.blocks < trial.machine.cores:
            yield f"{kernel.blocks} blocks for {trial.machine.cores} multiprocessors"
        found = _occupancy(kernel, trial.machine)
        if found is not None and found.share < _FEW:
            fit = f"{found.warps} of {found.most_warps} warps fit on a multiprocessor"
            yield f"{fit} (few, unless it computes on tensor cores)"


def _known(build: BuildReport) -> str:
    figures = (
        ("registers", build.registers),
        ("bytes of spills", build.spill_bytes),
        ("bytes of shared memory", build.shared_bytes),
    )
    return ", ".join(f"{value} {name}" for name, value in figures if value is not None)


def _launch(kernel: KernelProfile) -> Iterator[str]:
    if kernel.blocks and kernel.threads:
        yield f"{kernel.blocks} blocks of {kernel.threads} threads"
    figures = (
        ("registers", kernel.registers),
        ("bytes of shared memory", kernel.shared_bytes),
        ("bytes of local memory a thread", kernel.local_bytes),
    )
    yield from (f"{value} {name}" for name, value in figures if value)


def _fit(kernel: KernelProfile, machine: Machine) -> Iterator[str]:
    """Yields the occupancy that launch and registers allow, and how many waves of blocks that makes."""
    found = _occupancy(kernel, machine)
    if found is None:
        return
    full = f"{found.warps} of {found.most_warps} warps fit on a multiprocessor"
    yield full if found.share == 1 else f"{full}, limited by {found.limit}"
    if kernel.blocks:
        yield f"{kernel.blocks / (found.blocks * machine.cores):.2g} waves of blocks"


def _occupancy(kernel: KernelProfile, machine: Machine) -> Occupancy | None:
    if kernel.threads is None or kernel.registers is None or kernel.shared_bytes is None:
        return None
    return occupancy(machine.compute_capability, kernel.threads, kernel.registers, kernel.shared_bytes)
