"""Student's t against its tables, and how often chance is called a slowdown."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean

import pytest
from gate_reports import PROBLEM, report, timed

from agentgen.records.trial import Speedup
from agentgen.scoring.goes import by_case
from agentgen.scoring.times import Times, student_quantile, student_tail

HALF = 1.959964
"""Standard errors on each side of a 95% interval."""


@pytest.mark.parametrize(
    ("t", "freedom", "tail"),
    [(12.706, 1, 0.025), (4.303, 2, 0.025), (2.571, 5, 0.025), (2.228, 10, 0.025), (4.587, 10, 0.0005), (0.0, 7, 0.5)],
)
def test_student_as_in_the_tables(t: float, freedom: int, tail: float) -> None:
    assert student_tail(t, freedom) == pytest.approx(tail, rel=2e-3)
    assert student_tail(-t, freedom) == pytest.approx(1 - tail, rel=2e-3)
    assert student_quantile(tail, freedom) == pytest.approx(t, abs=2e-3)


def test_of_much_freedom_it_is_normal() -> None:
    assert student_quantile(0.025, 1000) == pytest.approx(1.962, abs=1e-3)


def goes(random: Random, count: int, ratio: float, scatter: float, own: float) -> tuple[Speedup, ...]:
    """Returns races whose ratios scatter by so much, with intervals of their own opinion; both relative."""
    found = [timed(ratio * math.exp(random.gauss(0, scatter)), HALF * own).races[0] for _ in range(count)]
    return tuple(found)


def share_called(scatter: float, own: float, slowdown: float, count: int, level: float, trials: int = 1000) -> float:
    """Returns how often a slowdown is told, over many pairs of reports."""
    random = Random(1)
    called = 0
    for _ in range(trials):
        old, new = (goes(random, count, 2.0 / factor, scatter, own) for factor in (1.0, 1.0 + slowdown))
        called += Times("eager", old, new, 500.0).slower() < level
    return called / trials


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("own", [0.01, 0.02, 0.04])
def test_chance_is_called_a_slowdown_no_more_often_than_was_said(count: int, own: float) -> None:
    """Goes scatter by 2%, and their intervals say half of it, as much, or twice as much."""
    assert share_called(0.02, own, 0.0, count, 0.05) < 0.07


@pytest.mark.parametrize(("count", "most"), [(2, 0.002), (3, 0.002)])
def test_searches_that_find_several_kernels_are_no_slower_by_chance(count: int, most: float) -> None:
    """Their kernels differ by 10%, each of which its race knows to 0.2%."""
    random = Random(3)
    called = 0
    for _ in range(5000):
        sides = [[timed(2.0 * math.exp(random.gauss(0, 0.1)), kernel=f"k{n}") for n in range(count)] for _ in range(2)]
        old, new = (by_case(report({"a": side}, inputs=PROBLEM))["a"] for side in sides)
        times = Times.of(old, new)
        assert times
        called += times.slower() < 0.001
    assert called / 5000 <= most


def test_a_slowdown_as_large_as_the_margin_is_none() -> None:
    assert share_called(0.002, 0.002, 0.01, 3, 0.001) <= 0.003


@pytest.mark.parametrize(("scatter", "count"), [(0.001, 1), (0.002, 2), (0.01, 10)])
def test_five_per_cent_is_told(scatter: float, count: int) -> None:
    assert share_called(scatter, scatter, 0.05, count, 0.001) > 0.95


@pytest.mark.parametrize("count", [1, 3, 8])
@pytest.mark.parametrize("level", [0.001, 0.00001])
def test_what_is_said_to_be_told_is_told_nine_times_in_ten(count: int, level: float) -> None:
    """Goes scatter by twice what their intervals say; the slowdown is the one that is said on the average."""
    random = Random(2)
    least = []
    for _ in range(300):
        old, new = (goes(random, count, 2.0, 0.02, 0.01) for _ in range(2))
        least.append(Times("eager", old, new, 500.0).least(level))
    assert 0.86 < share_called(0.02, 0.01, fmean(least), count, level) < 0.98


def test_the_margin_of_a_short_call_is_larger() -> None:
    old, new = timed(100.0, 1e-4).races, timed(97.0, 1e-4).races
    assert Times("eager", old, new, 500.0).slower() < 0.001
    assert Times("eager", old, new, 10.0).slower() > 0.5, "0.4 us of 10 us are 4%"


def test_intervals_that_say_nothing_tell_nothing() -> None:
    (race,) = timed(2.0).races
    wide = (race.model_copy(update={"low": 1e-12, "high": 1e12}),)
    assert Times("eager", wide, wide, 500.0).least(1e-5) == math.inf
