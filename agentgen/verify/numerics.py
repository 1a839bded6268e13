"""Is it right? Errors against the float64 oracle, pooled over the draws of a family, and the gates they must meet.

A family passes when, over its draws,

    ||out - oracle|| / ||oracle||  <=  gate = max(4 x torch's own error, 4 x the oracle's change by one ulp, floor)
    |out - oracle| <= 8 x gate x (|oracle| + rms of its last-dimension row)
                      + max(4 x floor x terms, 4 x torch's own worst error in that draw)   everywhere

`terms` is the size of what is summed in that row: what one ulp of the inputs moves the oracle by (rms over the elements
of the row that moved), over the ulp; the ulps once up or down at random, once a row at a time, once all up, because
partial sums of terms of one sign grow with their number (sorted inputs), those of random signs with its root. A row can
cancel (a channel whose weights sum to almost 0, on inputs of ones), or be worse conditioned than others (attention
where two scores nearly tie): then its rms says nothing of what an honest kernel is off by
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


MANY = 64
"""Elements after which no rounding at all is no coincidence."""
PART_ELEMENTS = 1 << 26
"""Looked at in one go: each takes some ten float64 temporaries."""


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
    _norm: float = 0.0
    _elements: int = 0
    _worst: float = 0.0
    _not_finite: int = 0
    _oracle_not_finite: int = 0
    _not_zero: int = 0
    _notes: list[str] = field(default_factory=list)

    def add(self, out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor, moved: Sequence[Moved]) -> None:
        """Adds one output of one draw.

        Args:
            out: The candidate's output, any dtype, on the judge's device.
            oracle: float64, same shape; exact where the output is of integers.
            by_torch: torch's output in the problem's arithmetic.
            moved: By what the oracle changes as inputs move by one ulp each: value by value, row by row, all up
                (`nudge`, `nudge_rows`, `lift`). The first is the family's condition.
        """
        self.draws += 1
        if not oracle.numel():
            return
        if not oracle.is_floating_point():
            self._worst = math.inf if not torch.equal(out, oracle) else self._worst
            self._norm += 1.0
            return
        if not bool(torch.isfinite(oracle).all()):
            self._oracle_not_finite += 1
            return
        self._ulp_change += moved[0].squares
        terms = torch.stack([other.rows for other in moved]).amax(0) / torch.finfo(by_torch.dtype).eps
        pairs = zip(_parts(by_torch, oracle), _parts(oracle, oracle), strict=True)
        torch_worst = max((a.double() - b).abs().max().item() for a, b in pairs)
        parts = zip(*(_parts(x, oracle) for x in (out, oracle, by_torch, terms)), strict=True)
        for rows, of_oracle, of_torch, of_terms in parts:
            self._add_rows(rows, of_oracle, of_torch, of_terms, torch_worst)

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
        scale = oracle.abs() + _row_rms(oracle)
        slack = torch.zeros_like(terms)
        if not self.must_be_exact:
            slack = (TERMS_FACTOR * FLOOR[self.arithmetic] * terms).clamp(min=TORCH_FACTOR * torch_worst)
        # Where a whole row of the oracle is zero there is no scale: the output is zero wherever torch's is, but for
        # what rounding may do to a value that a ReLU has cut off.
        self._not_zero += int(((scale == 0) & (difference.abs() > slack) & (by_torch == 0)).sum())
        self._worst = max(self._worst, _worst_ratio(difference.abs() - slack, scale))

    @property
    def selects(self) -> bool:
        """Whether torch made no error at all on enough values: nothing is rounded here (a max-pool, a gather)."""
        return self._torch_error == 0.0 and self._norm > 0.0 and self._elements >= MANY

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


@dataclass(frozen=True)
class Moved:
    """What one ulp of the inputs moved the oracle by."""

    squares: float
    """Sum of squares."""
    rows: torch.Tensor
    """Root mean square over the elements that moved of each last-dimension row, that dimension kept with size 1: after
    a ReLU a row may have a single one, and its zeros say nothing of the size of its terms."""

    @staticmethod
    def between(oracle: torch.Tensor, other: torch.Tensor) -> Moved:
        """Compares two oracles; in parts, because each may be a tenth of a GPU's memory."""
        if not oracle.is_floating_point() or not oracle.numel():
            return Moved(0.0, torch.zeros(()))
        squares = 0.0
        rows: list[torch.Tensor] = []
        for a, b in zip(_parts(oracle, oracle), _parts(other, oracle), strict=True):
            change = b - a
            squares += change.square().sum().item()
            moved = (change != 0).sum(dim=-1, keepdim=True).clamp(min=1)
            rows.append((change.square().sum(dim=-1, keepdim=True) / moved).sqrt())
        return Moved(squares, torch.cat(rows))


def _parts(x: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns x, a tensor of the shape of `like` or one value a row of it, in parts of as many rows as need little
    memory beside it."""
    width = like.shape[-1] if like.dim() else 1
    own = width if x.shape == like.shape else 1
    return x.reshape(like.numel() // max(1, width), own).split(max(1, PART_ELEMENTS // max(1, width)))


def _worst_ratio(difference: torch.Tensor, scale: torch.Tensor) -> float:
    ratio = torch.where(scale > 0, difference / scale, 0.0).nan_to_num(nan=math.inf, posinf=math.inf)
    return max(0.0, ratio.max().item()) if ratio.numel() else 0.0


def _row_rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean(dim=-1, keepdim=True).sqrt()


def lift(x: torch.Tensor) -> torch.Tensor:
    """Returns x with every element moved up by one ulp of its dtype; integers as they are."""
    if not x.is_floating_point():
        return x
    return torch.nextafter(x, torch.full((), math.inf, dtype=x.dtype, device=x.device))


def nudge(x: torch.Tensor, source: torch.Generator) -> torch.Tensor:
    """Returns x with every element moved by one ulp of its dtype, up or down at random; integers as they are."""
    return _moved(x, x.shape, source)


def nudge_rows(x: torch.Tensor, source: torch.Generator) -> torch.Tensor:
    """Returns x with every element moved by one ulp of its dtype, all of a last-dimension row up or all down at
    random; integers as they are."""
    return _moved(x, (*x.shape[:-1], 1) if x.dim() else (), source)


def _moved(x: torch.Tensor, signs: tuple[int, ...], source: torch.Generator) -> torch.Tensor:
    if not x.is_floating_point():
        return x
    up = torch.empty(signs, dtype=torch.float32, device=x.device).bernoulli_(0.5, generator=source) > 0
    infinity = torch.full((), math.inf, dtype=x.dtype, device=x.device)
    return torch.where(up, torch.nextafter(x, infinity), torch.nextafter(x, -infinity))
