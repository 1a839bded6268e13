"""Machine and Target: where a measurement was made, and what a run aims at there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pydantic import Field

from agentgen.records.base import Record, content_hash
from agentgen.records.problem import Arithmetic, DeviceType


class Ceilings(Record):
    """What this device reaches on large, regular work (measured by `verify.ceilings`, not from a datasheet)."""

    copy_bytes_per_s: float = Field(gt=0)
    """Bytes read plus bytes written of a large device-to-device copy."""
    matmul_flops_per_s: Mapping[Arithmetic, float]
    """Of a large square matrix product on random data, per arithmetic."""

    def peak_flops_per_s(self, arithmetic: Arithmetic) -> float:
        """Returns the rate that bounds a kernel allowed to compute in `arithmetic`.

        fp32-accurate results can be had from three TF32 products of split operands (Ootomo and Yokota 2022), so on a
        device with tensor cores a third of the TF32 rate bounds fp32 where that is more than the fp32 rate.
        """
        rates = self.matmul_flops_per_s
        own = rates[arithmetic]
        if arithmetic is Arithmetic.FP32 and Arithmetic.TF32 in rates:
            return max(own, rates[Arithmetic.TF32] / 3)
        return own


class Machine(Record):
    """The environment of a measurement. Times are compared within one `id` only."""

    device_type: DeviceType
    device: str
    """The name the vendor gives it: "NVIDIA H200", "AMD EPYC"."""
    cores: int
    """Streaming multiprocessors of a GPU; CPU cores that this process may use."""
    memory_bytes: int
    last_level_cache_bytes: int
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str
    triton: str | None
    python: str

    @cached_property
    def id(self) -> str:
        """Content hash of every field."""
        return content_hash(self.model_dump(mode="json"))


class TensorShape(Record):
    """Shape and dtype of an input or output, for prompts and reports."""

    shape: tuple[int, ...]
    dtype: str


class Target(Record):
    """A problem on one device in one arithmetic: what the judge found out before any candidate came."""

    problem: str
    arithmetic: Arithmetic
    machine: Machine
    ceilings: Ceilings
    workload: str = "main"
    """The one that is timed; another than `main` where the device has too little memory for that."""
    constants: Mapping[str, int | float | bool | str]
    """The module constants of that workload on this device."""
    inputs: tuple[TensorShape, ...]
    outputs: tuple[TensorShape, ...]
    parameters: Mapping[str, TensorShape]
    flops: int
    bytes_moved: int
    """Each input and parameter read once, each output written once."""
    bound_us: float
    """max(bytes / copy rate, flops / matmul rate): the roofline of Williams, Waterman and Patterson (2009)."""
    bound_by: str
    """"memory" or "compute"."""
    baselines_us: Mapping[str, float]
    """Median time of each baseline at `main`, measured before any guest existed."""

    @property
    def best_baseline(self) -> str:
        """Name of the fastest baseline."""
        return min(self.baselines_us, key=lambda name: self.baselines_us[name])
