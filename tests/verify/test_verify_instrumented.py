from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentgen.records.trial import KernelProfile
from agentgen.verify.claims import Claim, KernelClaim
from agentgen.verify.instrumented import (
    MOST_GUESTS,
    MOST_KERNELS,
    MOST_WINDOWS,
    Instrumented,
    as_timed,
    profile,
    quickest,
)


def test_a_profile_is_per_call_and_the_longest_kernel_comes_first() -> None:
    claims = [
        KernelClaim(name="fill", count=16, us=20.0),
        KernelClaim(
            name="conv", count=8, us=180.0, registers=128, blocks=528, threads=256, shared_bytes=0, local_bytes=0
        ),
    ]
    assert profile(claims, 8) == (
        KernelProfile(
            kernel="conv", launches=1, us=22.5, share=0.9, registers=128, blocks=528, threads=256, shared_bytes=0,
            local_bytes=0,
        ),
        KernelProfile(kernel="fill", launches=2, us=2.5, share=0.1),
    )  # fmt: skip


def test_a_profile_is_bounded_whatever_a_guest_claims() -> None:
    claims = [KernelClaim(name="k" * 1000, count=0, us=0.0)] * 100
    found = profile(claims, 1)
    assert len(found) == MOST_KERNELS
    assert all(len(kernel.kernel) == 200 and kernel.share == 0.0 for kernel in found)
    assert profile((), 8) == ()


@pytest.mark.parametrize(
    ("times", "found", "measured"),
    [
        ([10.0], 10.0, 1),
        ([20.0], 20.0, 1),
        ([87.0, 12.0], 12.0, 2),
        ([87.0, 30.0, 40.0, 11.0], 11.0, 4),
        ([87.0, 30.0, 40.0, 50.0, 60.0], 30.0, MOST_WINDOWS),
    ],
)
def test_a_long_window_is_measured_again_until_one_is_not(times: Sequence[float], found: float, measured: int) -> None:
    windows = ((Claim(ok=True), us) for us in times)
    assert quickest(next(windows), 20.0, lambda: next(windows))[1] == found
    assert len(times) == measured
    assert not list(windows), "as many as were needed"


@pytest.mark.parametrize(
    ("timed_us", "wall", "calls_us", "found_us", "audited"),
    [
        (1854.0, False, [1900.0], 1900.0, 1),
        (1854.0, False, [2461.0, 1860.0], 1860.0, 2),
        (1854.0, False, [2461.0, 2900.0, 2400.0], 2400.0, MOST_GUESTS),
        (1854.0, False, [2461.0, None, 2500.0], 2461.0, MOST_GUESTS),
        (1854.0, False, [None], None, 1),
        (2112.0, True, [3800.0], 3800.0, 1),
        (2112.0, True, [11305.0, 3800.0], 3800.0, 2),
        (2112.0, True, [11305.0, 12000.0, 9000.0], 9000.0, MOST_GUESTS),
    ],
)
def test_who_took_longer_under_instruments_is_audited_again(
    timed_us: float, wall: bool, calls_us: Sequence[float | None], found_us: float | None, audited: int
) -> None:
    """What is left is compared by "instruments agree" as ever: a cheat is slower in every guest."""
    guests = (Instrumented(us, 0.0) for us in calls_us)
    assert as_timed(next(guests), timed_us, lambda: next(guests), wall=wall).call_us == found_us
    assert len(calls_us) == audited
    assert not list(guests), "as many as were needed"
