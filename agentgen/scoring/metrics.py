"""What is computed of many goes at problems: fast_p, the geometric mean of speedups, pass@k. Each comes with its n.

A go that failed stays in every denominator, whoever failed: the model, its kernel or the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, isfinite
from statistics import fmean, geometric_mean
from typing import Final

from agentgen.scoring.rates import Rate

THRESHOLDS: Final = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0)
"""Of p: from "right and honest at all" to what only fusion or another algorithm gives."""
FLOOR: Final = 0.1
"""What an unsolved problem counts in a geometric mean: as ten times slower than the baseline.

A mean of ratios has to be geometric (Fleming and Wallace, CACM 29(3), 1986), and there a 0 would wipe out all others. A
failure counted as ten times the limit is the custom where programs that may fail are compared by time (PAR10: Hutter et
al., JAIR 36, 2009; Bischl et al., Artificial Intelligence 237, 2016); the limit is here the time of the baseline, which
whoever has no kernel runs instead. Not 1, although he loses nothing: a model that solves nothing would then beat one
whose kernels are right and a little slow. Not 0.001: one failure among ten would weigh as much as all others together.
"""


@dataclass(frozen=True)
class Go:
    """One go at a problem."""

    solved: bool
    """There is a kernel that is right and honest."""
    speedup: float | None = None
    """Of a solved one; None where it could not be timed."""

    def __post_init__(self) -> None:
        if self.speedup is not None and not (self.solved and isfinite(self.speedup) and self.speedup > 0):
            raise ValueError(f"a speedup of {self.speedup} of a problem that is {'' if self.solved else 'un'}solved")

    @property
    def counted(self) -> float:
        """What it counts in a geometric mean over all. One that was not timed has shown no speedup, and a kernel never
        counts less than none."""
        return max(self.speedup or 0.0, FLOOR)


@dataclass(frozen=True)
class Mean:
    """A mean of so many; None of nothing."""

    value: float | None
    of: int


def fast_p(goes: Sequence[Go], p: float) -> Rate:
    """Returns the share of all that are right, honest and more than p times as fast as the baseline (Ouyang et al.,
    KernelBench, arXiv 2502.10517), by the median speedup. fast_0 also counts what could not be timed."""
    fast = [go for go in goes if go.solved and (p == 0 or (go.speedup is not None and go.speedup > p))]
    return Rate(len(fast), len(goes))


def geomean(ratios: Sequence[float]) -> Mean:
    """Returns the geometric mean of ratios above 0."""
    return Mean(geometric_mean(ratios) if ratios else None, len(ratios))


def pass_at_k(n: int, c: int, k: int) -> float:
    """Returns the chance that at least one of k goes succeeds, of which n were made and c did: 1 - C(n-c, k) / C(n, k),
    which is unbiased (Chen et al., Evaluating Large Language Models Trained on Code, arXiv 2107.03374, eq. 1).

    Raises:
        ValueError: fewer goes than k, or successes, were made: nothing unbiased can be said of more.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@{k} of {n} goes with {c} successes")
    return 1 - comb(n - c, k) / comb(n, k)


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> Mean:
    """Returns the mean of pass@k over problems, of each the goes and the successes."""
    return Mean(fmean(pass_at_k(n, c, k) for n, c in counts) if counts else None, len(counts))
