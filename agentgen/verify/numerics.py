"""Is it right? Errors against the float64 oracle, pooled over the draws of a family, and the gates they must meet.

A family passes when, over its draws,

    ||out - oracle|| / ||oracle||  <=  gate = max(4 x torch's own error, 8 x the oracle's change as inputs move by one
                                                  ulp at random, 1 x that as they move together, floor)
    |out - oracle| <= 8 x gate x (|oracle| + rms of its last-dimension row)
                      + max(4 x floor x terms, 4 x torch's own worst error in that draw)   everywhere

`terms` is the size of what is summed in that row: what one ulp of the inputs moves the oracle by (rms over the elements
of the row that moved), over the ulp; the ulps once up or down at random, once a row at a time, once all up, because
partial sums of terms of one sign grow with their number (sorted inputs), those of random signs with its root. A row can
cancel (a channel whose weights sum to almost 0, on inputs of ones), or be worse conditioned than others (attention
where two scores nearly tie): then its rms says nothing of what an honest kernel is off by
(`docs/decisions/003-element-gate.md` has the figures).

The same gates at the floors of the other arithmetics say which one the errors are worth (`Pool.reached`): a kernel that
computes in less than the problem's arithmetic is told so, one that is fp32-accurate where TF32 would do is shown so.

There is no absolute tolerance (zeros would pass for softmax over long rows, whose values are 1e-5) and no share of
elements that may be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Accuracy
from agentgen.verify.comparison import compare
from agentgen.verify.conditioning import Moved, parts_of

FLOOR: dict[Arithmetic, float] = {
    Arithmetic.FP32: 2e-6,
    Arithmetic.TF32: 1e-3,
    Arithmetic.FP16: 1e-3,
    Arithmetic.BF16: 8e-3,
}
"""Relative L2 error that a kernel of the class may always have, however accurate torch happens to be."""

CLASSES = (Arithmetic.FP32, Arithmetic.TF32, Arithmetic.FP16, Arithmetic.BF16)
"""From the most accurate to the least. TF32 and FP16 have the same ten bits of mantissa, and one floor."""

TORCH_FACTOR = 4.0
ULP_FACTOR = 8.0
"""A sum of a thousand terms, one after the other in eight lanes, is off by six ulps (decision 011)."""
COMMON_FACTOR = 1.0
ELEMENT_FACTOR = 8.0
TERMS_FACTOR = 4.0
ILL_CONDITIONED = 1e-2
"""One ulp of the inputs moves the oracle by more than this: the family says nothing about a kernel."""

PLAINLY = 50.0
"""An error of so many floors is that of a lesser arithmetic: TF32's 2e-4 is a hundred of fp32's."""

ROUNDED = 0.2
"""Relative L2 error that rounding the outputs alone makes, in ulps of their dtype (0.21 for normal values): BF16's
1.7e-3 is above TF32's floor, and no class above BF16 is worth asking about."""

MANY = 64
"""Elements after which no rounding at all is no coincidence."""


@dataclass
class Pool:
    """Sums over the draws of one family at one workload. All squares are float64."""

    workload: str
    family: str
    arithmetic: Arithmetic
    must_be_exact: bool
    """Exact wherever torch itself is: the {0,1} family, and every family where the problem only selects."""
    draws: int = 0
    _error: float = 0.0
    _torch_error: float = 0.0
    _ulp_change: float = 0.0
    _common_change: float = 0.0
    _norm: float = 0.0
    _elements: int = 0
    _worst: dict[Arithmetic, float] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0.0))
    _not_finite: int = 0
    _oracle_not_finite: int = 0
    _not_zero: int = 0
    _wide: bool = False
    _output_eps: float = math.inf
    """Of the outputs' dtypes the finest."""

    def add(self, out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor, moved: Sequence[Moved] = ()) -> None:
        """Adds one output of one draw.

        Args:
            out: The candidate's output, any dtype, on the judge's device.
            oracle: float64, same shape; exact where the output is of integers.
            by_torch: torch's output in the problem's arithmetic.
            moved: By what the oracle changes as inputs move by one ulp each: value by value, row by row, all up
                (`nudge`, `nudge_rows`, `lift`). The first is the family's condition. None: nobody has looked, and the
                gates are narrower than they might be (`passes_narrowly`).
        """
        self.draws += 1
        if not oracle.numel():
            return
        if not oracle.is_floating_point():
            if not torch.equal(by_torch, oracle):  # a tie that rounding decides: torch's own answer is no better
                self._oracle_not_finite += 1
            elif not torch.equal(out, oracle):
                self._worst = dict.fromkeys(CLASSES, math.inf)
            self._norm += 1.0
            return
        self._output_eps = min(self._output_eps, torch.finfo(by_torch.dtype).eps)
        if by_torch.dtype is torch.float64:  # the oracle is torch's own answer, and says nothing of exactness
            self.must_be_exact, self._wide = False, True
        if not moved:
            self._add_narrowly(out, oracle, by_torch)
            return
        if not bool(torch.isfinite(oracle).all()) or not all(math.isfinite(other.squares) for other in moved):
            self._oracle_not_finite += 1
            return
        self._ulp_change += moved[0].squares
        self._common_change += max(other.squares for other in moved)
        ulp = moved[0].ulp or torch.finfo(by_torch.dtype).eps
        terms = torch.stack([other.rows for other in moved]).amax(0) / ulp
        pairs = zip(parts_of(by_torch, oracle), parts_of(oracle, oracle), strict=True)
        torch_worst = max((a.double() - b).abs().max().item() for a, b in pairs)
        parts = zip(*(parts_of(x, oracle) for x in (out, oracle, by_torch, terms)), strict=True)
        for rows, of_oracle, of_torch, of_terms in parts:
            self._add_rows(rows, of_oracle, of_torch, of_terms, torch_worst)

    def _add_narrowly(self, out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor) -> None:
        # Where torch itself is exact, its error excuses nothing.
        limit = math.inf if self.must_be_exact else ELEMENT_FACTOR * FLOOR[self.arithmetic]
        seen = compare(out, oracle, by_torch, limit, TORCH_FACTOR)
        self._elements += oracle.numel()
        self._norm += seen.norm
        self._error += seen.error
        self._torch_error += seen.torch_error
        for arithmetic in self._classes:
            found = seen.worst if _tighter(arithmetic, self.arithmetic) else seen.beyond
            self._worst[arithmetic] = max(self._worst[arithmetic], math.inf if math.isnan(found) else found)

    def _add_rows(
        self,
        out: torch.Tensor,
        oracle: torch.Tensor,
        by_torch: torch.Tensor,
        terms: torch.Tensor,
        torch_worst: float,
    ) -> None:
        self._elements += oracle.numel()
        difference = out.double() - oracle
        self._not_finite += int((~torch.isfinite(difference)).sum())
        self._error += difference.square().sum().item()
        self._torch_error += (by_torch.double() - oracle).square().sum().item()
        self._norm += oracle.square().sum().item()
        scale, size = oracle.abs() + oracle.square().mean(dim=-1, keepdim=True).sqrt(), difference.abs()
        for arithmetic in self._classes:
            slack = torch.zeros_like(terms)
            if not self.must_be_exact:
                # torch's own error is that of the problem's arithmetic: it excuses nothing in a more accurate one.
                least = TORCH_FACTOR * torch_worst if not _tighter(arithmetic, self.arithmetic) else 0.0
                slack = (TERMS_FACTOR * FLOOR[arithmetic] * terms).clamp(min=least)
            self._worst[arithmetic] = max(self._worst[arithmetic], _worst_ratio(size - slack, scale))
            if arithmetic is self.arithmetic:
                # Where a whole row of the oracle is zero there is no scale: the output is zero wherever torch's is,
                # but for what rounding may do to a value that a ReLU has cut off.
                self._not_zero += int(((scale == 0) & (size > slack) & (by_torch == 0)).sum())

    @property
    def _classes(self) -> tuple[Arithmetic, ...]:
        """Those worth telling apart: of the two with ten bits only the problem's own, else TF32."""
        other = Arithmetic.TF32 if self.arithmetic is Arithmetic.FP16 else Arithmetic.FP16
        return tuple(arithmetic for arithmetic in CLASSES if arithmetic is not other)

    @property
    def selects(self) -> bool:
        """Whether torch made no error at all on enough values: nothing is rounded here (a max-pool, a gather)."""
        exact = self._torch_error == 0.0 and self._norm > 0.0 and self._elements >= MANY
        return exact and not self._wide

    @property
    def torch_relative_l2(self) -> float | None:
        """Of torch itself; None where it is not finite or the oracle is zero."""
        return self._relative(self._torch_error)

    @property
    def gate(self) -> float:
        """Largest relative L2 error that passes."""
        return self._gate_of(self.arithmetic)

    def _gate_of(self, arithmetic: Arithmetic) -> float:
        if self.must_be_exact and self._torch_error == 0.0:
            return 0.0
        candidates = [FLOOR[arithmetic], ULP_FACTOR * (self._relative(self._ulp_change) or 0.0)]
        candidates.append(COMMON_FACTOR * (self._relative(self._common_change) or 0.0))
        if not _tighter(arithmetic, self.arithmetic):
            candidates.append(TORCH_FACTOR * (self.torch_relative_l2 or 0.0))
        return max(candidates)

    @property
    def reached(self) -> Arithmetic | None:
        """The most accurate arithmetic whose gates the errors meet; None: not even BF16's."""
        if self._not_finite or self._not_zero:
            return None
        error = self._relative(self._error)
        for arithmetic in self._classes:
            gate = self._gate_of(arithmetic)
            if (error is None or error <= gate) and self._worst[arithmetic] <= ELEMENT_FACTOR * gate:
                return arithmetic
        return None

    @property
    def passes_narrowly(self) -> bool:
        """Whether it passes without anybody having asked what one ulp of the inputs does, in a class that would be no
        better if somebody had."""
        sums = (self._norm, self._error, self._torch_error, *self._worst.values())
        if self._oracle_not_finite or not all(map(math.isfinite, sums)) or self.problems():
            return False
        better = self._classes[: self._classes.index(self.reached)] if self.reached else ()
        error, rounded = self._relative(self._error) or 0.0, ROUNDED * self._output_eps
        return all(FLOOR[one] < rounded or error > PLAINLY * FLOOR[one] for one in better)

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
        elif (worst := self._worst[self.arithmetic]) > self.element_limit:
            found.append(
                f"{where}: an element is off by {worst:.2e} of its size and row, over the limit of "
                f"{self.element_limit:.2e}"
            )
        return found

    def accuracy(self) -> Accuracy:
        """Returns the record of this family."""
        gate, limit, largest = self.gate, self.element_limit, self._worst[self.arithmetic]
        worst = largest / limit if limit > 0 else (0.0 if largest == 0 else None)
        return Accuracy(
            workload=self.workload,
            family=self.family,
            draws=self.draws,
            relative_l2=self._relative(self._error),
            gate=gate,
            torch_relative_l2=self.torch_relative_l2,
            worst_element=worst if worst is not None and math.isfinite(worst) else None,
            gated=self.gated,
            reached=self.reached,
        )

    def _relative(self, squares: float) -> float | None:
        if self._norm == 0.0 or not math.isfinite(squares):
            return None
        return math.sqrt(squares / self._norm)


def loosest(reached: Iterable[Arithmetic | None]) -> Arithmetic | None:
    """Returns the least accurate of what was reached; None if nothing was somewhere, or nowhere looked."""
    found = list(reached)
    if not found or None in found:
        return None
    return max((one for one in found if one), key=CLASSES.index)


def _tighter(one: Arithmetic, other: Arithmetic) -> bool:
    return FLOOR[one] < FLOOR[other]


def _worst_ratio(difference: torch.Tensor, scale: torch.Tensor) -> float:
    ratio = torch.where(scale > 0, difference / scale, 0.0).nan_to_num(nan=math.inf, posinf=math.inf)
    return max(0.0, ratio.max().item()) if ratio.numel() else 0.0
