from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentgen.records.trial import KernelProfile
from agentgen.verify.claims import Claim, KernelClaim
from agentgen.verify.instrumented import MOST_KERNELS, MOST_WINDOWS, profile, quickest


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
