"""The interval of a median holds it about as often as it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgen.verify.stats import median_interval, quartiles

SAMPLES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)
DRAWS: dict[str, tuple[Callable[[np.random.Generator, int], Any], float]] = {
    "normal": (lambda source, n: source.normal(3.0, 1.0, n), 3.0),
    "exponential": (lambda source, n: source.exponential(1.0, n), float(np.log(2))),
    "cauchy": (lambda source, n: source.standard_cauchy(n), 0.0),
    "a time with stragglers": (lambda source, n: 1 + source.lognormal(0, 2, n), 2.0),
}
"""Each with its median."""


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(("confidence", "windows"), [(0.95, 21), (0.8, 21), (0.95, 11)])
def test_the_interval_covers_the_median_at_about_its_rate(name: str, confidence: float, windows: int) -> None:
    draw, median = DRAWS[name]
    source = np.random.default_rng(1)
    covered = 0
    for _ in range(150):
        _, low, high = median_interval(list(draw(source, windows)), confidence)
        covered += low <= median <= high
    # Three standard deviations of 150 trials, and 0.03 for the bootstrap of so few windows.
    slack = 0.03 + 3 * (confidence * (1 - confidence) / 150) ** 0.5
    assert abs(covered / 150 - confidence) < slack


@given(SAMPLES)
def test_the_same_samples_give_the_same_interval(values: list[float]) -> None:
    assert median_interval(values) == median_interval(list(values))


@given(SAMPLES)
def test_the_interval_lies_round_the_median_and_within_the_samples(values: list[float]) -> None:
    median, low, high = median_interval(values)
    assert min(values) <= low <= high <= max(values)
    assert median == np.median(values)
    assert low <= median <= high or len(values) < 5


@pytest.mark.parametrize("count", [1, 2, 11])
def test_equal_samples_leave_no_doubt(count: int) -> None:
    assert median_interval([1.25] * count) == (1.25, 1.25, 1.25)


def test_more_samples_narrow_the_interval_and_more_confidence_widens_it() -> None:
    values = list(np.random.default_rng(2).normal(size=400))

    def width(count: int, confidence: float) -> float:
        _, low, high = median_interval(values[:count], confidence)
        return high - low

    assert width(400, 0.95) < width(25, 0.95)
    assert width(25, 0.5) < width(25, 0.95) < width(25, 0.999)


def test_one_straggler_moves_neither_median_nor_interval() -> None:
    calm = [10.0 + 0.01 * i for i in range(21)]
    assert median_interval([*calm[:-1], 1e6])[0] == median_interval(calm)[0]
    assert median_interval([*calm[:-1], 1e6])[2] < 11


def test_quartiles() -> None:
    assert quartiles([5, 1, 4, 2, 3]) == (2.0, 3.0, 4.0)
    assert quartiles([7]) == (7.0, 7.0, 7.0)
