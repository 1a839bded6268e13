"""Problem: what is to be computed, at which sizes, on what inputs, in what arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from agentgen.records.base import Record, content_hash

Scalar = int | float | bool | str
DeviceType = Literal["cpu", "cuda"]


class Arithmetic(StrEnum):
    """What a kernel may compute in. Decides the error gate and the setting of the baselines.

    `FP32` means fp32-accurate: any method, also tensor cores with split operands, that meets the fp32 gate.
    """

    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"

    def on(self, device: DeviceType) -> Arithmetic:
        """Returns what this arithmetic is on a device: a CPU has no TF32."""
        return Arithmetic.FP32 if self is Arithmetic.TF32 and device == "cpu" else self


class OwnWork(StrEnum):
    """Whose kernels may do the work."""

    STRICT = "strict"
    """Allocation, fill, copy, cast, pad and permute by torch are free; all other compute is the candidate's own."""
    LIBRARY = "library"
    """ATen, cuBLAS and cuDNN are allowed, and the trial says so."""


class Demand(StrEnum):
    """What becomes of a kernel that does not meet a property which not every user needs."""

    REQUIRED = "required"
    REPORTED = "reported"


class Workload(Record):
    """One set of sizes: constants of the reference module that are overridden before `get_inputs` is called."""

    name: str
    constants: Mapping[str, Scalar] = {}
    cpu_constants: Mapping[str, Scalar] = {}
    """Applied on top of `constants` on a CPU, so that `main` takes milliseconds a call there on two cores."""

    def constants_on(self, device: DeviceType) -> dict[str, Scalar]:
        """Returns the overrides for a device."""
        return {**self.constants, **(self.cpu_constants if device == "cpu" else {})}


class Problem(Record):
    """A torch module to be replaced by a faster one. `reference` is the text of a KernelBench-style module:
    `Model`, `get_inputs()`, `get_init_inputs()`."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    title: str
    reference: str
    workloads: tuple[Workload, ...]
    """The one named `main` is timed; all are checked."""
    smaller: tuple[Workload, ...] = ()
    """Timed instead of `main` on a GPU with too little memory for it: the first that fits."""
    neighbours: tuple[Workload, ...] = ()
    """Shapes near `main` (half, double, one item, ragged) at which a kernel is checked and timed as well, to say how
    special it is."""
    arithmetic: Arithmetic
    own_work: OwnWork = OwnWork.STRICT
    strided_inputs: Demand = Demand.REPORTED
    """Inputs whose rows do not follow each other: a kernel may refuse them; being wrong on them in silence fails it
    where this is required."""
    special_values: Demand = Demand.REPORTED
    """NaN and Inf, where torch has them."""
    flops: int | None = None
    """Floating-point operations of one call at `main`, for when torch's own count misses something. Per device size
    it would differ, so it is only read on a GPU; a CPU always counts."""

    @model_validator(mode="after")
    def _has_main(self) -> Problem:
        names = [workload.name for workload in (*self.workloads, *self.smaller, *self.neighbours)]
        if "main" in names[len(self.workloads) :] or names.count("main") != 1 or len(set(names)) != len(names):
            raise ValueError(f"workloads must have distinct names and exactly one 'main', not {names}")
        return self

    @property
    def main(self) -> Workload:
        """The workload that is timed."""
        return next(workload for workload in self.workloads if workload.name == "main")

    def root(self, arithmetic: Arithmetic) -> str:
        """Returns the content hash that stands for the reference as the first parent of all ideas."""
        return content_hash("root", self.reference, arithmetic.value)
