"""The floor of a workload: how many bytes must move, how many operations be done, and how long that takes at least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from agentgen.records.machine import Ceilings
from agentgen.records.problem import Arithmetic
from agentgen.verify.reference import Reference


@dataclass(frozen=True)
class Work:
    """What one call must do at least."""

    flops: int
    bytes_moved: int
    """Inputs and parameters read once, outputs written once."""

    def bound(self, ceilings: Ceilings, arithmetic: Arithmetic) -> tuple[float, str]:
        """Returns (microseconds, "memory" or "compute"): the larger of the two times of the roofline model."""
        memory_us = 1e6 * self.bytes_moved / ceilings.copy_bytes_per_s
        compute_us = 1e6 * self.flops / ceilings.peak_flops_per_s(arithmetic)
        return (memory_us, "memory") if memory_us >= compute_us else (compute_us, "compute")


class FlopCounter(TorchDispatchMode):
    """Sums torch's own formulas. What `torch.utils.flop_counter.FlopCounterMode` does, less its account by module and
    its import of torch._dynamo, 1.8 s of each start of a judge."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket in _ATTENTION:
            self.flops += _attention_flops(func, args, kwargs or {})
            return func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is None:
            with self:  # an operator without a formula may consist of some that have one
                parts = func.decompose(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {})) if parts is NotImplemented else parts
        answer = func(*args, **(kwargs or {}))
        self.flops += formula(*args, **(kwargs or {}), out_val=answer)
        return answer


_ATTENTION = frozenset(
    getattr(torch.ops.aten, f"_scaled_dot_product_{kind}")
    for kind in ("flash_attention_for_cpu", "flash_attention", "efficient_attention", "cudnn_attention")
)


def _attention_flops(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Returns the operations of both products of scaled_dot_product_attention, over the pairs that a causal mask
    leaves. Torch's registry has none for the kernel of a CPU (a bound of 86 us for what takes 2.4 ms at the peak), and
    counts the whole square for the others, which is no bound at all."""
    given = {**dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)), **kwargs}
    *batch, rows, width = given["query"].shape
    columns, value_width = given["key"].shape[-2], given["value"].shape[-1]
    pairs = rows * columns
    if given.get("is_causal"):  # row i sees the first i + 1 columns
        seen = min(rows, columns)
        pairs = seen * (seen + 1) // 2 + (rows - seen) * columns
    return 2 * math.prod(batch) * pairs * (width + value_width)


def work_of(reference: Reference, device: str, declared_flops: int | None) -> Work:
    """Counts the work of one call.

    Args:
        reference: At the workload in question.
        device: That it lies on.
        declared_flops: From the problem; None counts matrix products and convolutions as torch's own counter does
            (multiply and add are two; elementwise operations are not counted: they hide behind the bytes).
    """
    moved = sum(reference.nbytes)
    moved += sum(tensor.nbytes for tensor in reference.state().values())
    if declared_flops is not None:
        return Work(declared_flops, moved)
    counter = FlopCounter()
    inputs = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in reference.inputs]
    with counter, torch.no_grad():
        reference.call(*inputs)
    return Work(counter.flops, moved)


def byte_floor_us(reference: Reference, cache_bytes: int, bytes_per_s: float) -> float:
    """Returns the time below which a call cannot have done its work: inputs plus outputs beyond the cache, at the
    bandwidth nothing exceeds."""
    moved = sum(reference.nbytes)
    return 1e6 * max(0, moved - cache_bytes) / bytes_per_s
