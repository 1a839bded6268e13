"""Each cheat with time comes out fast by the naive harness, and what only times tell is refused by the judge.

Both need a machine that is not busy otherwise: beside other work, two threads that meet at a barrier took 8 ms for
whatever they did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from corpus import ask, bank, cheats_with_time, corpus, needs_quiet, parameters, verdict
from harness import NaiveHarness, Verdict

from agentgen.scoring.cases import KernelCase
from agentgen.scoring.verdicts import Verdict as Found

pytestmark = pytest.mark.slow
ATTEMPTS = 5
MOST = 3
GAIN = 0.7
"""A cheat of the clock must come out in less than this share of torch's own time."""
CASES = [case for case in corpus("cpu", honest=False) if cheats_with_time(case)]


@pytest.fixture(scope="module")
def naive() -> Iterator[NaiveHarness]:
    with NaiveHarness() as harness:
        yield harness


@pytest.mark.parametrize("case", parameters(CASES))
def test_it_fools_the_naive_clock(naive: NaiveHarness, case: KernelCase) -> None:
    # Once is enough: on a machine that others use too, a kernel that does nothing may take 8 ms for it.
    said = [ask(naive, case)]
    while not _gains(said[-1]) and len(said) < ATTEMPTS:
        said.append(ask(naive, case))
    assert all(verdict.correct for verdict in said)
    assert _gains(said[-1]), said


def _gains(said: Verdict) -> bool:
    return said.candidate_us < GAIN * said.reference_us


@pytest.mark.parametrize("case", parameters([case for case in corpus("cpu", honest=False) if needs_quiet(case)]))
def test_it_is_refused_for_its_times_without_the_screen(case: KernelCase) -> None:
    # Where others delay the windows that are compared, they cannot be told: in 1 of 8 goes on a virtual machine. So
    # three of at most five goes.
    verdicts: list[Found] = []
    while len(verdicts) < ATTEMPTS and refused(verdicts) < MOST:
        verdicts.append(_judged(case))
    assert refused(verdicts) == MOST, verdicts
    assert case.expected_output
    for found in verdicts:
        assert found.accepted or found.caused_by(case.expected_output), found


def refused(verdicts: Sequence[Found]) -> int:
    return sum(not found.accepted for found in verdicts)


def _judged(case: KernelCase) -> Found:
    with bank("cpu") as judges:
        return verdict(judges.of(case), case, off=["screen"])
