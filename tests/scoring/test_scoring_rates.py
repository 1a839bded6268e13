"""Exact intervals, against values worked by hand and by the definition."""

from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgen.scoring.rates import Rate


def test_none_of_n_has_the_upper_end_by_hand() -> None:
    """(1 - p)^n = 0.025."""
    low, high = Rate(0, 90).interval()
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 90), abs=1e-9)


def test_all_of_n_mirrors_none() -> None:
    low, high = Rate(20, 20).interval()
    assert (low, high) == (pytest.approx(0.025 ** (1 / 20), abs=1e-9), 1.0)


def test_one_of_ten_as_in_the_tables() -> None:
    """Clopper-Pearson for 1 of 10 at 95%: 0.0025 to 0.4450."""
    assert Rate(1, 10).interval() == (pytest.approx(0.002529, abs=1e-6), pytest.approx(0.445016, abs=1e-6))


@pytest.mark.parametrize("of", [1030, 20_000])
def test_of_very_many_it_is_as_the_normal_distribution_has_it(of: int) -> None:
    low, high = Rate(of // 2, of).interval()
    width = 1.959964 * sqrt(0.25 / of)
    assert (0.5 - low, high - 0.5) == (pytest.approx(width, rel=0.05), pytest.approx(width, rel=0.05))
    assert Rate(0, of).interval()[1] == pytest.approx(1 - 0.025 ** (1 / of), abs=1e-9)


def test_nothing_says_nothing() -> None:
    assert Rate(0, 0).interval() == (0.0, 1.0)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_holds_the_rate(case: tuple[int, int]) -> None:
    count, of = case
    low, high = Rate(count, of).interval()
    assert 0 <= low <= count / of <= high <= 1
