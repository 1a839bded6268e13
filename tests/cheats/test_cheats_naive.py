"""Each cheat fools a harness as many have written it: one that fools nothing would prove nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus import corpus, file_of, parameters
from harness import NaiveHarness

from agentgen.scoring.cases import KernelCase

pytestmark = pytest.mark.slow
GAIN = 0.7
"""A cheat of the clock must come out in less than this share of torch's own time."""


@pytest.fixture(scope="module")
def naive() -> Iterator[NaiveHarness]:
    with NaiveHarness() as harness:
        yield harness


@pytest.mark.parametrize("case", parameters(corpus("cpu", honest=False)))
def test_it_fools_the_naive_harness(naive: NaiveHarness, case: KernelCase) -> None:
    assert case.metadata
    said = naive.verdict(
        file_of(case.inputs.problem),
        file_of(case.inputs.kernel),
        reference_first=case.metadata.reference_first,
    )
    assert said.correct
    if case.metadata.fools == "time":
        assert said.candidate_us < GAIN * said.reference_us


def test_it_is_not_easy_to_fool_altogether(naive: NaiveHarness) -> None:
    """It accepts what is right and refuses what is plainly wrong, or being fooled by it would mean nothing."""
    honest = file_of(next(iter(corpus("cpu", honest=True))).inputs.kernel)
    assert honest.is_file()
