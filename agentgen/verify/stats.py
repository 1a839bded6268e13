"""Medians and their intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 4000


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """Returns (median, low, high): the percentile bootstrap of the median (Efron 1979), with a fixed seed so that the
    same samples always give the same interval.

    Args:
        values: At least one sample.
        confidence: Share of the bootstrap medians inside the interval.
    """
    samples = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(0).choice(samples, size=(RESAMPLES, samples.size), replace=True)
    medians = np.median(draws, axis=1)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(np.median(samples)), float(low), float(high)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns (first quartile, median, third quartile)."""
    low, middle, high = np.percentile(np.asarray(values, dtype=np.float64), [25, 50, 75])
    return float(low), float(middle), float(high)
