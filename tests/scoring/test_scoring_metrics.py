"""fast_p, geomean and pass@k against values worked by hand."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgen.scoring.metrics import FLOOR, THRESHOLDS, Go, Mean, fast_p, geomean, mean_pass_at_k, pass_at_k
from agentgen.scoring.rates import Rate

FAILED = Go(solved=False)
UNTIMED = Go(solved=True)
FOUR = (Go(solved=True, speedup=2.0), Go(solved=True, speedup=0.5), UNTIMED, FAILED)


def test_fast_p_by_hand() -> None:
    """Of 4: three are right, one is faster than 0.5 (0.5 itself is not), and that one until 2."""
    counts = [fast_p(FOUR, p).count for p in THRESHOLDS]
    assert counts == [3, 1, 1, 1, 1, 0, 0]
    assert {fast_p(FOUR, p).of for p in THRESHOLDS} == {4}


def test_fast_p_where_everything_failed_and_of_nothing() -> None:
    assert fast_p([FAILED] * 3, 0) == Rate(0, 3)
    assert fast_p([FAILED] * 3, 1).share == 0.0
    assert fast_p([], 1) == Rate(0, 0)
    assert fast_p([], 1).share is None


def test_the_geometric_mean_by_hand() -> None:
    """(2 x 0.5 x 0.1 x 0.1) ^ (1/4) = 0.01 ^ (1/4) = 1 / sqrt(10)."""
    found = geomean([go.counted for go in FOUR])
    assert (found.value, found.of) == (pytest.approx(10**-0.5), 4)


def test_the_geometric_mean_where_everything_failed_is_the_floor() -> None:
    found = geomean([FAILED.counted] * 7)
    assert (found.value, found.of) == (pytest.approx(FLOOR), 7)


def test_the_geometric_mean_of_nothing_is_none() -> None:
    assert geomean([]) == Mean(None, 0)


def test_a_right_kernel_never_counts_less_than_none() -> None:
    assert Go(solved=True, speedup=0.001).counted == FAILED.counted == UNTIMED.counted == FLOOR


@pytest.mark.parametrize("speedup", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_speedup_is_refused(speedup: float) -> None:
    with pytest.raises(ValueError, match="speedup"):
        Go(solved=True, speedup=speedup)


def test_an_unsolved_problem_has_no_speedup() -> None:
    with pytest.raises(ValueError, match="unsolved"):
        Go(solved=False, speedup=2.0)


@pytest.mark.parametrize(
    ("n", "c", "k", "chance"),
    [
        (5, 2, 1, 0.4),
        (5, 2, 2, 0.7),  # 1 - C(3,2)/C(5,2) = 1 - 3/10
        (5, 2, 3, 0.9),  # 1 - C(3,3)/C(5,3) = 1 - 1/10
        (5, 2, 4, 1.0),  # of four, one is among the two
        (5, 0, 5, 0.0),
        (1, 1, 1, 1.0),
        (200, 1, 100, 0.5),
    ],
)
def test_pass_at_k_by_hand(n: int, c: int, k: int, chance: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(chance)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_all_choices_that_hold_a_success(case: tuple[int, int, int]) -> None:
    n, c, k = case
    choices = list(combinations(range(n), k))  # the first c are successes
    assert pass_at_k(n, c, k) == pytest.approx(sum(chosen[0] < c for chosen in choices) / len(choices))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, 1, 0), (3, -1, 1), (0, 0, 1)])
def test_of_more_than_was_tried_nothing_is_said(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


def test_pass_at_k_is_averaged_over_problems() -> None:
    """(0.7 + 0 + 1) / 3."""
    found = mean_pass_at_k([(5, 2), (5, 0), (5, 5)], 2)
    assert (found.value, found.of) == (pytest.approx(1.7 / 3), 3)
    assert mean_pass_at_k([(4, 0), (4, 0)], 4) == Mean(0.0, 2)
    assert mean_pass_at_k([], 1) == Mean(None, 0)
