"""Is a kernel slower than it was, by more than goes at one and the same kernel differ?

1. The figure of a go is the logarithm of baseline over kernel: their windows alternated, so that a machine that is
   slower as a whole changes both.
2. A go's variance is what intervals say of it (`OWN`) and what the goes of the case scatter by, on both sides
   together, with the intervals counted as `WORTH` goes. (Of few goes alone it is too small too often: Smyth 2004,
   "Linear models and empirical Bayes methods for assessing differential expression", does the same for genes.)
3. Slower: the mean of now lies below that of then by more than the margin by which identical kernels in different
   processes were seen to differ, beyond chance by Student's t.

Figures, and what was rejected: docs/decisions/028-the-gate.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from agentgen.records.trial import Speedup, margin
from agentgen.scoring.goes import Goes

WORTH: Final = 4
"""So many goes the intervals are worth as witnesses of the variance, where all goes are at one kernel."""
OWN: Final = 2.0
"""Goes at one kernel were seen to scatter by so many of the standard errors that their intervals say."""
MISSED: Final = 0.1
"""How often a slowdown may be missed that is said to be told."""
_WIDE: Final = 2 * 1.959964
"""Standard errors that a 95% interval is wide."""

_LARGEST: Final = 1e12
"""Speedup, or microseconds (11 days), that nothing exceeds."""
_HOLDS: Final = 709.0
"""Of larger exponents `math.exp` is no float."""


@dataclass(frozen=True)
class Times:
    """The races of one case with one baseline, then and now."""

    baseline: str
    old: tuple[Speedup, ...]
    new: tuple[Speedup, ...]
    call_us: float
    """Of the kernel, then."""
    worth: int = WORTH
    """0 where searches found several kernels: how far those differ, no interval of a race knows."""

    @classmethod
    def of(cls, old: Goes, new: Goes) -> Times | None:
        """Returns what can be compared; None: nothing. Kernels that searches found are compared where they are the
        same, or where several goes on each side say how far searches differ."""
        before, now = old.raced, new.raced
        if not before or not now:
            return None
        kernels = {verdict.candidate for verdict in (*before, *now)}
        if new.solved and (len(kernels) > 1 or None in kernels) and min(len(before), len(now)) < 2:
            return None
        races = [{race.baseline: race for race in verdict.races} for verdict in (*before, *now)]
        shared = next((name for name in races[0] if all(name in one for one in races)), None)
        if shared is None:
            return None
        raced = tuple(one[shared] for one in races)
        call_us = median([race.baseline_us / race.ratio for race in raced[: len(before)]])
        worth = 0 if new.solved and len(kernels) > 1 else WORTH
        return cls(shared, raced[: len(before)], raced[len(before) :], call_us, worth)

    @property
    def change(self) -> float:
        """Time of now over time of then, less 1: 0.05 is slower by 5%."""
        return _grown(_mean(self.old) - _mean(self.new))

    def slower(self) -> float:
        """Returns how often goes at a kernel that is slower by no more than the margin differ as much as these."""
        return self._tail(_mean(self.old) - _mean(self.new))

    def faster(self) -> float:
        """Returns the same of a kernel that is faster."""
        return self._tail(_mean(self.new) - _mean(self.old))

    def least(self, level: float) -> float:
        """Returns the smallest slowdown that would be found nine times in ten, as `change`: about, for goes scatter by
        chance, and so does what their scatter is taken for."""
        quantile = student_quantile(level, self._freedom)
        scatter = math.sqrt(1 + quantile**2 * (self._freedom - self.worth) / (2 * self._freedom**2))
        wide = quantile + student_quantile(MISSED, self._freedom) * scatter
        return _grown(self._margin + self._error * wide)

    def said(self) -> tuple[str, str]:
        """Returns both sides in words."""
        return _said(self.old), _said(self.new)

    @property
    def _margin(self) -> float:
        return math.log1p(margin(self.call_us))

    @property
    def _freedom(self) -> int:
        return self.worth + len(self.old) + len(self.new) - 2

    @property
    def _error(self) -> float:
        """Of the difference of the means, of logarithms."""
        interval = median([_error(race) for race in (*self.old, *self.new)])  # one disturbed go widens its own tenfold
        scattered = sum((math.log(race.ratio) - _mean(side)) ** 2 for side in (self.old, self.new) for race in side)
        variance = (self.worth * (OWN * interval) ** 2 + scattered) / self._freedom
        return math.sqrt(variance * (1 / len(self.old) + 1 / len(self.new)))

    def _tail(self, difference: float) -> float:
        beyond = difference - self._margin
        if self._error == 0.0:
            return 0.0 if beyond > 0 else 1.0
        return student_tail(beyond / self._error, self._freedom)


def measurable(race: Speedup) -> bool:
    """Whether a race, of a file that anybody may have edited, has figures that can be compared."""
    within = 0 <= race.low <= race.ratio <= race.high <= _LARGEST and race.ratio >= 1 / _LARGEST
    return within and 1 / _LARGEST <= race.baseline_us <= _LARGEST


def _grown(logarithm: float) -> float:
    """Returns a ratio less 1: infinity beyond what a float holds, as intervals from 0 on make it."""
    return math.exp(logarithm) - 1 if logarithm < _HOLDS else math.inf


def student_tail(t: float, freedom: int) -> float:
    """Returns how often Student's t lies above `t` (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    term, total = (1.0, 0.0) if freedom % 2 == 0 else (cosine, 0.0)
    for step in range(1 + freedom % 2, freedom, 2):
        total += term
        term *= cosine**2 * step / (step + 1)
    within = sine * total if freedom % 2 == 0 else 2 / math.pi * (angle + sine * total)
    return (1 - within) / 2


def student_quantile(tail: float, freedom: int) -> float:
    """Returns above which t so much of it lies."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return high


def _mean(side: Sequence[Speedup]) -> float:
    return fmean(math.log(race.ratio) for race in side)


def _error(race: Speedup) -> float:
    return math.log(race.high / race.low) / _WIDE if race.low > 0 else math.inf


def _said(side: Sequence[Speedup]) -> str:
    ratio = math.exp(_mean(side))
    if len(side) == 1:
        return f"{ratio:.3f}x [{side[0].low:.3f}, {side[0].high:.3f}]"
    return f"{ratio:.3f}x in {len(side)} goes of {min(r.ratio for r in side):.3f} to {max(r.ratio for r in side):.3f}"
