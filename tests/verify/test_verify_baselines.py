"""What a candidate races: torch in the same arithmetic, and in a more accurate one where that may be faster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from verify_problems import small_conv

from agentgen.records.problem import Arithmetic
from agentgen.sandbox.guest.candidate import set_arithmetic
from agentgen.verify.baselines import baselines
from agentgen.verify.reference import load


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    set_arithmetic("fp32")


@pytest.mark.parametrize("arithmetic", [Arithmetic.FP32, Arithmetic.TF32])
def test_torch_itself(arithmetic: Arithmetic) -> None:
    assert list(baselines(load(small_conv(), small_conv().main, "cpu", arithmetic), arithmetic)) == ["eager"]
    assert torch.backends.cudnn.allow_tf32 is (arithmetic is Arithmetic.TF32)


def test_in_half_with_autocast_and_without() -> None:
    reference = load(small_conv(), small_conv().main, "cpu", Arithmetic.BF16)
    raced = baselines(reference, Arithmetic.BF16)
    assert list(raced) == ["eager", "eager without autocast"]
    assert torch.backends.cudnn.allow_tf32
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        (half,), (plain,) = raced["eager"](x), raced["eager without autocast"](x)
    (oracle,) = reference.oracle_outputs([x])
    errors = [((y - oracle).norm() / oracle.norm()).item() for y in (half, plain)]
    assert 1e-3 < errors[0] < 8e-3
    assert errors[1] < 1e-6
