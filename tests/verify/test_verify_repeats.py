"""When enough windows were compared. What each takes is written down here; nothing is timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import cast

import pytest
from verify_guests import rig_of
from verify_problems import small_conv

from agentgen.records.problem import Arithmetic
from agentgen.verify.claims import Claim
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.repeats import MOST_ROUNDS, ROUNDS, SURE_ROUNDS, Repeats
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session
from agentgen.verify.timing import Race
from agentgen.verify.windows import Timed

NEVER = 1 << 30
CALLS = 8
Pair = tuple[float, float]
"""Microseconds of a call: where no input comes twice, and as in the race."""


class Scripted:
    """A session whose windows take what is said."""

    sampled_by_kernel = False

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.windows = 0
        self._times: Iterator[float] = chain.from_iterable(chain(pairs, repeat(pairs[-1])))

    def share(self, region: object) -> None: ...

    def timed(self, rig: Rig, calls: int, watcher: object) -> Timed:
        self.windows += 1
        return Timed(1e-6 * calls * next(self._times), 0.0, Claim(ok=True), {})


def compared(pairs: Sequence[Pair], raced_us: float) -> tuple[int, Findings]:
    """Returns how many pairs were looked at, the first left out, and what was found."""
    findings, session = Findings(), Scripted([(1.0, 1.0), *pairs])
    raced = Race(CALLS, (raced_us,) * 5, (raced_us,) * 5, {}, 0.0, (), 0.0)
    with rig_of(small_conv()) as rig:
        rig.draw_weights()
        rig.draw_inputs(Family.NORMAL)
        Repeats(rig, Arithmetic.FP32, NEVER).race(cast(Session, session), raced, findings)
    return session.windows // 2 - 1, findings


def test_an_honest_kernel_is_let_go_after_three_pairs() -> None:
    pairs, findings = compared([(100.0, 99.0)], 100.0)
    assert pairs == ROUNDS
    assert findings.checks[0].passed


def test_a_memory_is_found_when_all_of_eight_pairs_show_it() -> None:
    with pytest.raises(Rejected, match="longer in 8 of 8 pairs"):
        compared([(200.0, 100.0)], 100.0)
    assert SURE_ROUNDS == 8


def test_a_memory_that_stumbles_at_first_is_found_by_the_times_of_the_race() -> None:
    """Three pairs alike were once enough to let it go, though it had raced at half of that time."""
    with pytest.raises(Rejected, match="remembers answers within a window"):
        compared([(200.0, 205.0)] * ROUNDS + [(200.0, 100.0)], 100.0)


def test_a_machine_that_became_slower_after_the_race_condemns_nobody() -> None:
    pairs, findings = compared([(200.0, 205.0)], 100.0)
    assert pairs == MOST_ROUNDS - 1
    assert findings.checks[0].passed
