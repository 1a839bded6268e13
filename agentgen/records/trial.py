"""Trial: what one evaluation of one candidate found, with its evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal

from pydantic import Field, FiniteFloat, model_validator

from agentgen.records.base import Record
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic

EAGER: Final = "eager"
"""The baseline that every problem has: torch without a compiler."""


class Outcome(StrEnum):
    """How a trial ended. A failing machine is no outcome: it raises."""

    PASSED = "PASSED"
    SCREENED_OUT = "SCREENED_OUT"
    BUILD_FAILED = "BUILD_FAILED"
    CRASHED = "CRASHED"
    TIMED_OUT = "TIMED_OUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    WRONG_SHAPE = "WRONG_SHAPE"
    WRONG_DTYPE = "WRONG_DTYPE"
    WRONG_VALUES = "WRONG_VALUES"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    CHEATED = "CHEATED"
    NOT_RUN = "NOT_RUN"
    """Compiled only: CUDA without a GPU."""


class Depth(StrEnum):
    """How far an evaluation goes."""

    JUDGE = "judge"
    """Every candidate."""
    CERTIFY = "certify"
    """Before a kernel is shown around: memory and race checkers, a hundred draws, a second measurement."""


class Check(Record):
    """One thing that was looked at, and what was seen."""

    name: str
    passed: bool | None
    """None: it decided nothing. It was skipped, or it only reports; the evidence says which."""
    evidence: str


class Accuracy(Record):
    """Error against the float64 oracle, pooled over the draws of one value family at one workload."""

    workload: str
    family: str
    draws: int
    relative_l2: float | None
    """||out - oracle|| / ||oracle||; None where the oracle is zero as a whole or the output is not finite."""
    gate: float
    torch_relative_l2: float | None
    """Of torch itself in the same arithmetic."""
    worst_element: float | None
    """Largest |out - oracle| over what the element gate allows; 1 is the limit."""
    gated: bool = True
    """False where oracle or torch overflow, or one ulp of the inputs moves the oracle by over 1e-2: reported only."""
    reached: Arithmetic | None = None
    """The most accurate arithmetic whose gates these errors meet; None: not even that of bf16."""

    @property
    def share_of_limit(self) -> float:
        """Error over what is allowed, the worse of norm and element: 1 is the limit, infinite what is not finite, or
        what is wrong at all where the family must be exact (a gate of 0)."""
        element = self.worst_element if self.worst_element is not None else math.inf
        if self.relative_l2 is None:  # an oracle of zero has no relative error
            return element
        return max(_share(self.relative_l2, self.gate), element)


def _share(error: float, gate: float) -> float:
    if gate == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return error / gate


class Clock(StrEnum):
    """Whose hands a time comes from. Both belong to the judge."""

    GATE = "gate"
    """GPU: the judge opens a gate kernel and watches a word that a mark kernel sets behind the calls."""
    WALL = "wall"
    """CPU: from the judge's command to the guest's answer."""


class Timing(Record):
    """Cold-cache time of one call at `main`, by the judge's clock."""

    clock: Clock
    median_us: FiniteFloat = Field(gt=0)
    low_us: FiniteFloat = Field(gt=0)
    high_us: FiniteFloat = Field(gt=0)
    """Quartiles over the windows."""
    calls_per_window: int
    windows: int
    guests: int
    """Fresh guests that were measured."""
    copy_us: float
    """Time to copy one output to the judge, measured by itself and already taken off `median_us`."""
    guest_clock_us: float | None = None
    """The guest's own figure for the same windows: a claim, compared with ours, never used. None: no second clock."""


MARGIN_RATIO = 0.01
MARGIN_US = 0.4


def margin(call_us: float) -> float:
    """Returns by which share of its time a call was seen to differ between processes with identical code, at most
    (docs/verification.md, "Fast")."""
    return max(MARGIN_RATIO, MARGIN_US / call_us)


class Speedup(Record):
    """Baseline time over candidate time: the median of ratios of neighbouring windows, with a bootstrap interval."""

    baseline: str
    baseline_us: FiniteFloat
    ratio: FiniteFloat = Field(gt=0)
    low: FiniteFloat
    high: FiniteFloat
    """95% interval of the median (Efron 1979, percentile method)."""
    faster: bool
    """`low` lies above the margin by which identical kernels in different processes were seen to differ."""


class Neighbour(Record):
    """The same kernel at a neighbouring shape: how special is it?"""

    workload: str
    median_us: FiniteFloat = Field(gt=0)
    speedup: Speedup
    """Against eager torch there."""


class BuildReport(Record):
    """What a compiler said of one kernel."""

    kernel: str
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None


class KernelProfile(Record):
    """One kernel on the GPU, at the timed workload, as CUPTI saw it in a guest that was not timed: its claim."""

    kernel: str
    """As the linker knows it."""
    launches: float
    """Per call of the model."""
    us: float
    """On the device, in one call of the model."""
    share: float
    """Of the device time of all kernels."""
    threads: int | None = None
    """Of a block. These and the following are of its longest launch."""
    blocks: int | None = None
    registers: int | None = None
    """Of a thread, as it was launched."""
    shared_bytes: int | None = None
    """Of a block, static and dynamic."""
    local_bytes: int | None = None
    """Of a thread: spilled registers, and arrays that are no registers."""


Stage = Literal["start", "build", "check", "state", "audit", "time", "general", "certify"]


class Trial(Record):
    """What one evaluation found. Only a PASSED trial may carry a timing; what was not measured is None."""

    candidate: str
    problem: str
    arithmetic: Arithmetic
    machine: Machine
    depth: Depth = Depth.JUDGE
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    accuracy_class: Arithmetic | None = None
    """The most accurate arithmetic whose gates are met everywhere: fp32 for a kernel of a TF32 problem that is better
    than it must be. None: not even bf16's, or never looked."""
    build: tuple[BuildReport, ...] = ()
    profile: tuple[KernelProfile, ...] = ()
    """The kernels that took longest, the first one most. Only where there is a GPU with CUPTI."""
    timing: Timing | None = None
    speedups: tuple[Speedup, ...] = ()
    """One per baseline, the fastest baseline first."""
    neighbours: tuple[Neighbour, ...] = ()
    """The problem's neighbouring shapes, as far as they were timed."""
    roofline_fraction: FiniteFloat | None = None
    seconds: Mapping[Stage, float] = {}
    log: str = ""
    """Tail of the guest's stdout and stderr, and of the traceback where it raised. Shown, never read for a decision."""

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Trial:
        if self.outcome is not Outcome.PASSED:
            if self.timing or self.speedups or self.roofline_fraction is not None:
                raise ValueError(f"a {self.outcome} trial has no timing")
            if not self.reasons:
                raise ValueError(f"a {self.outcome} trial says why")
        elif any(check.passed is False for check in self.checks):
            raise ValueError("a PASSED trial has no failed check")
        return self

    @property
    def accepted(self) -> bool:
        """Whether the kernel is right and honest (fast or not)."""
        return self.outcome is Outcome.PASSED

    @property
    def speedup(self) -> Speedup | None:
        """Against the fastest baseline."""
        return self.speedups[0] if self.speedups else None

    @property
    def worst_neighbour(self) -> Neighbour | None:
        """The neighbouring shape at which it does worst."""
        return min(self.neighbours, key=lambda n: n.speedup.ratio, default=None)
