"""Rates with their n and their interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb, exp, fsum, lgamma, log, log1p


@dataclass(frozen=True)
class Rate:
    """So many of so many."""

    count: int
    of: int

    @property
    def share(self) -> float | None:
        """None of nothing."""
        return self.count / self.of if self.of else None

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Returns the exact interval of Clopper and Pearson (Biometrika 26, 1934): the rates under which a count as
        large, and as small, is no rarer than (1 - level) / 2. Of nothing, (0, 1)."""
        tail = (1 - level) / 2
        low = 0.0 if self.count == 0 else _root(lambda p: self._at_least(p) - tail)
        high = 1.0 if self.count == self.of else _root(lambda p: tail - self._at_most(p))
        return low, high

    def fewer_than(self, other: Rate) -> float:
        """Returns how often chance makes so few of these, and so many of the others, where both are of one rate
        (Fisher's exact test, one-sided)."""
        all_of, count = self.of + other.of, self.count + other.count
        ways = sum(comb(self.of, k) * comb(other.of, count - k) for k in range(self.count + 1) if k <= count)
        return ways / comb(all_of, count)

    def _at_most(self, p: float) -> float:
        # In logarithms: of a thousand cases, the ways are more than a float can hold. p is neither 0 nor 1.
        n = self.of
        logs = (_log_ways(n, k) + k * log(p) + (n - k) * log1p(-p) for k in range(self.count + 1))
        return fsum(map(exp, logs))

    def _at_least(self, p: float) -> float:
        return 1 - Rate(self.count - 1, self.of)._at_most(p)


def _log_ways(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _root(rising: Callable[[float], float]) -> float:
    """Returns where a rising function of [0, 1] is zero, to 1e-12."""
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high
