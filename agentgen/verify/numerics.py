"""Is it right? Errors against the float64 oracle, pooled over the draws of a family, and the gates they must meet.

A family passes when, over its draws,

    ||out - oracle|| / ||oracle||  <=  gate = max(4 x torch's own error, 4 x the oracle's change by one ulp, floor)
    |out - oracle| <= 8 x gate x (|oracle| + rms of its last-dimension row) + 4 x floor x terms   everywhere

`terms` is the size of what is summed in that row: what one ulp of the inputs moves the oracle by (rms of the row), over
the ulp; the ulps once up or down at random and once all up, because partial sums of terms of one sign grow with their
number (sorted inputs), those of random signs with its root. A row can cancel (a channel whose weights sum to almost 0,
on inputs of ones): then its rms says nothing of the size of its terms, and every honest kernel is far off by that scale
(`docs/decisions/003-element-gate.md` has the figures).

There is no absolute tolerance (zeros would pass for softmax over long rows, whose values are 1e-5) and no share of
elements that may be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Accuracy

FLOOR: dict[Arithmetic, float] = {
    Arithmetic.FP32: 2e-6,
    Arithmetic.TF32: 1e-3,
    Arithmetic.FP16: 1e-3,
    Arithmetic.BF16: 8e-3,
}
"""Relative L2 error that a kernel of the class may always have, however accurate torch happens to be."""

TORCH_FACTOR = 4.0
ULP_FACTOR = 4.0
ELEMENT_FACTOR = 8.0
TERMS_FACTOR = 4.0
ILL_CONDITIONED = 1e-2
"""One ulp of the inputs moves the oracle by more than this: the family says nothing about a kernel."""


@dataclass
class Pool:
    """Sums over the draws of one family at one workload. All squares are float64."""

    workload: str
    family: str
    arithmetic: Arithmetic
    must_be_exact: bool
    """Exact wherever torch itself is (the {0,1} family)."""
    draws: int = 0
    _error: float = 0.0
    _torch_error: float = 0.0
    _ulp_change: float = 0.0
    _norm: float = 0.0
    _worst: float = 0.0
    _not_finite: int = 0
    _oracle_not_finite: int = 0
    _not_zero: int = 0
    _notes: list[str] = field(default_factory=list)

    def add(
        self, out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor, moved: Sequence[torch.Tensor]
    ) -> None:
        """Adds one output of one draw.

        Args:
            out: The candidate's output, any float dtype, on the judge's device.
            oracle: float64, same shape.
            by_torch: torch's output in the problem's arithmetic.
            moved: The oracle of the same inputs moved by one ulp each: at random (`nudge`), then all up (`lift`).
        """
        self.draws += 1
        if not oracle.is_floating_point():
            self._worst = math.inf if not torch.equal(out, oracle) else self._worst
            self._norm += 1.0
            return
        if not bool(torch.isfinite(oracle).all()):
            self._oracle_not_finite += 1
            return
        difference = out.double() - oracle
        self._not_finite += int((~torch.isfinite(difference)).sum())
        size = oracle.square()
        self._error += difference.square().sum().item()
        self._torch_error += (by_torch.double() - oracle).square().sum().item()
        self._ulp_change += (moved[0] - oracle).square().sum().item()
        self._norm += size.sum().item()
        scale = oracle.abs() + _row_rms(oracle)
        terms = torch.stack([_row_rms(other - oracle) for other in moved]).amax(0) / torch.finfo(by_torch.dtype).eps
        slack = 0.0 if self.must_be_exact else TERMS_FACTOR * FLOOR[self.arithmetic] * terms
        # Where a whole row of the oracle is zero there is no scale: the output is zero wherever torch's is.
        self._not_zero += int(((scale == 0) & (out != 0) & (by_torch == 0)).sum())
        self._worst = max(self._worst, _worst_ratio(difference.abs() - slack, scale))

    @property
    def torch_relative_l2(self) -> float | None:
        """Of torch itself; None where it is not finite or the oracle is zero."""
        return self._relative(self._torch_error)

    @property
    def gate(self) -> float:
        """Largest relative L2 error that passes."""
        floor = FLOOR[self.arithmetic]
        if self.must_be_exact and self._torch_error == 0.0:
            return 0.0
        candidates = [floor, TORCH_FACTOR * (self.torch_relative_l2 or 0.0)]
        candidates.append(ULP_FACTOR * (self._relative(self._ulp_change) or 0.0))
        return max(candidates)

    @property
    def element_limit(self) -> float:
        """Largest error of one element, relative to its size plus its row's rms, that passes."""
        return ELEMENT_FACTOR * self.gate

    @property
    def gated(self) -> bool:
        """False where the family says nothing: oracle or torch overflow, or one ulp of the inputs moves it too far."""
        if self._oracle_not_finite or not math.isfinite(self._torch_error):
            return False
        return (self._relative(self._ulp_change) or 0.0) <= ILL_CONDITIONED

    def problems(self) -> list[str]:
        """Returns what is wrong, each with its figures; nothing if the family passes or is not gated."""
        if not self.gated:
            return []
        where = f"{self.workload}, {self.family}"
        found: list[str] = []
        if self._not_finite:
            found.append(f"{where}: {self._not_finite} elements are NaN or Inf where the float64 oracle is finite")
        if self._not_zero:
            found.append(f"{where}: {self._not_zero} elements are not zero where oracle and torch are")
        if found:
            return found
        error, gate = self._relative(self._error), self.gate
        if error is not None and error > gate:
            found.append(
                f"{where}: relative L2 error {error:.2e} is over the {self.arithmetic.value} gate of {gate:.2e} "
                f"(torch itself: {self.torch_relative_l2:.2e})"
            )
        elif self._worst > self.element_limit:
            found.append(
                f"{where}: an element is off by {self._worst:.2e} of its size and row, over the limit of "
                f"{self.element_limit:.2e}"
            )
        return found

    def accuracy(self) -> Accuracy:
        """Returns the record of this family."""
        gate, limit = self.gate, self.element_limit
        worst = self._worst / limit if limit > 0 else (0.0 if self._worst == 0 else None)
        return Accuracy(
            workload=self.workload,
            family=self.family,
            draws=self.draws,
            relative_l2=self._relative(self._error),
            gate=gate,
            torch_relative_l2=self.torch_relative_l2,
            worst_element=worst if worst is not None and math.isfinite(worst) else None,
            gated=self.gated,
        )

    def _relative(self, squares: float) -> float | None:
        if self._norm == 0.0 or not math.isfinite(squares):
            return None
        return math.sqrt(squares / self._norm)


def _worst_ratio(difference: torch.Tensor, scale: torch.Tensor) -> float:
    ratio = torch.where(scale > 0, difference / scale, 0.0).nan_to_num(nan=math.inf, posinf=math.inf)
    return max(0.0, ratio.max().item()) if ratio.numel() else 0.0


def _row_rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(dim=-1, keepdim=True).sqrt() if x.dim() else x.abs()


def lift(x: torch.Tensor) -> torch.Tensor:
    """Returns x with every element moved up by one ulp of its dtype; integers as they are."""
    if not x.is_floating_point():
        return x
    return torch.nextafter(x, torch.full((), math.inf, dtype=x.dtype, device=x.device))


def nudge(x: torch.Tensor, source: torch.Generator) -> torch.Tensor:
    """Returns x with every element moved by one ulp of its dtype, up or down at random; integers as they are."""
    if not x.is_floating_point():
        return x
    up = torch.empty(x.shape, dtype=torch.float32, device=x.device).bernoulli_(0.5, generator=source) > 0
    infinity = torch.full((), math.inf, dtype=x.dtype, device=x.device)
    return torch.where(up, torch.nextafter(x, infinity), torch.nextafter(x, -infinity))
