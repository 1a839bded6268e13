"""Axes: from a value to a place on the page, and where the lines with numbers go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Tick = tuple[float, str]
"""Where, in units of the page, and what stands there."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis from `low` to `high`, on the page from `start` to `end` (which lies before it on an axis upwards)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Returns the place of a value; what lies outside is put on the edge."""
        low, high = self._line(self.low), self._line(self.high)
        share = (self._line(value) - low) / (high - low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)

    def _line(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def ticks(self) -> tuple[Tick, ...]:
        """Returns between three and about seven lines."""
        return tuple((self.at(value), number(value)) for value in (self._decades() if self.log else self._steps()))

    def _steps(self) -> list[float]:
        rough = (self.high - self.low) / 5
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * times for times in (1, 2, 5, 10) if size * times >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [count * step for count in range(first, last + 1)]

    def _decades(self) -> list[float]:
        low, high = math.log10(self.low), math.log10(self.high)
        every = max(1, math.ceil((high - low) / 6))
        marks = (1,) if high - low > 2.5 else (1, 2, 5)
        found = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1, every) for m in marks]
        return [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]


def reach(values: Sequence[float], *, log: bool = False) -> tuple[float, float]:
    """Returns the ends of an axis on which all values are seen: from 0 on, or with room on both sides."""
    if log:
        return min(values) / 1.5, max(values) * 1.5
    return 0.0, (max(values) * 1.08) or 1.0


def number(value: float) -> str:
    """Returns a number for an axis: `250`, `0.5`, `20k`, `3M`."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size * 0.9999:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}"
    return f"{value:.4g}"
