"""bf16 bit patterns against torch, and against exact arithmetic where torch rounds twice."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgen.sandbox.guest.bfloat16 import bfloat16_of, float32_of

EVERY_PATTERN = np.arange(65536, dtype=np.uint16)
LARGEST = float(float32_of(np.array([0x7F7F], dtype=np.uint16))[0])
finite = st.floats(-LARGEST, LARGEST, allow_nan=False)


def pattern(value: float, *, towards_zero: bool = False) -> int:
    return int(bfloat16_of(np.array([value], dtype=np.float64), towards_zero=towards_zero)[0])


def exact(bits: int) -> Fraction:
    return Fraction(float(float32_of(np.array([bits], dtype=np.uint16))[0]))


def test_every_pattern_comes_back() -> None:
    wide = float32_of(EVERY_PATTERN)
    expected = torch.from_numpy(EVERY_PATTERN.view(np.int16)).view(torch.bfloat16).float()
    assert torch.equal(torch.from_numpy(wide).view(torch.int32), expected.view(torch.int32))
    back, number = bfloat16_of(wide), ~np.isnan(wide)
    assert (back[number] == EVERY_PATTERN[number]).all()
    assert np.isnan(float32_of(back[~number])).all()


@pytest.mark.parametrize("low", [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_rounds_fp32_as_torch_does(low: int) -> None:
    single = ((EVERY_PATTERN.astype(np.uint32) << 16) | low).view(np.float32)
    single = single[~np.isnan(single)]
    expected = torch.from_numpy(single).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert (bfloat16_of(single) == expected).all()


@given(finite)
def test_rounds_fp64_once_to_the_nearest(value: float) -> None:
    bits = pattern(value)
    error = abs(exact(bits) - Fraction(value))
    for neighbour in (bits - 1, bits + 1):
        if 0 <= neighbour < 65536 and (neighbour & 0x7FFF) < 0x7F80:
            distance = abs(exact(neighbour) - Fraction(value))
            assert error < distance or (error == distance and bits % 2 == 0)


@given(finite)
def test_towards_zero_is_the_largest_that_is_not_larger(value: float) -> None:
    bits = pattern(value, towards_zero=True)
    assert abs(exact(bits)) <= abs(Fraction(value))
    if (bits & 0x7FFF) < 0x7F7F:
        assert abs(exact(bits + 1)) > abs(Fraction(value))


def test_a_tie_in_fp32_that_is_none_in_fp64() -> None:
    assert exact(pattern(1 + 2.0**-8)) == 1
    assert exact(pattern(1 + 2.0**-8 + 2.0**-40)) == 1 + Fraction(1, 128)
    assert exact(pattern(1 + 3 * 2.0**-8 - 2.0**-40)) == 1 + Fraction(1, 128)


def test_beyond_the_largest() -> None:
    assert pattern(1e300) == 0x7F80
    assert pattern(-1e300) == 0xFF80
    assert pattern(1e300, towards_zero=True) == 0x7F7F
    assert pattern(float("inf"), towards_zero=True) == 0x7F80


def test_integers_booleans_and_single_numbers() -> None:
    assert float32_of(bfloat16_of(np.array([-3, 0, 7, 16777217]))).tolist() == [-3, 0, 7, 16777216]
    assert float32_of(bfloat16_of(np.array([True, False]))).tolist() == [1, 0]
    assert bfloat16_of(np.float32(1.5)).shape == ()  # pyright: ignore[reportArgumentType]  the interpreter has such data
