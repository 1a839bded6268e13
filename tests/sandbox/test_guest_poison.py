"""Poisoned memory, in children of this process: glibc's allocator is changed for good."""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Callable

import pytest
import torch

from agentgen.sandbox.guest.poison import HUGE, NAN, poison

SIZES = (1 << 11, 1 << 14, 1 << 22)
"""Bytes: from the heap, and mapped by themselves."""


def child(task: Callable[[], None]) -> int:
    """Runs a task in a fork of this process; returns its wait status."""
    pid = os.fork()
    if not pid:
        try:
            torch.set_num_threads(1)  # this process's others are not here
            task()
            os._exit(0)
        except BaseException:  # noqa: BLE001  told on stderr, and by the status
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def require(byte: int, holds: Callable[[torch.Tensor], torch.Tensor]) -> None:
    poison(byte, "cpu", ())
    for nbytes in SIZES:
        for _ in range(3):  # new, and used before
            fresh = torch.empty(nbytes // 4)
            assert bool(holds(fresh).all()), nbytes
            fresh.zero_()
            del fresh


@pytest.mark.parametrize(
    ("byte", "holds"),
    [(NAN, torch.isnan), (HUGE, lambda x: (x > 1.1e30) & (x < 1.3e30))],  # pyright: ignore[reportUnknownLambdaType]
    ids=["NaN", "huge"],
)
def test_what_is_allocated_afterwards_holds_the_poison(
    byte: int, holds: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    assert child(lambda: require(byte, holds)) == 0


def test_the_second_poison_replaces_the_first() -> None:
    def both() -> None:
        require(NAN, torch.isnan)
        require(HUGE, lambda x: x > 1e30)

    assert child(both) == 0


def test_each_poison_shows_where_the_other_hides() -> None:
    """NaN in a sum, which 1e30 might leave finite; 1e30 in a maximum that passes over NaN (C's fmax)."""
    nan, huge = (torch.full((4,), byte, dtype=torch.uint8).view(torch.float32).item() for byte in (NAN, HUGE))
    assert math.isnan(nan)
    assert math.isnan(nan + 1)
    assert torch.fmax(torch.tensor(nan), torch.tensor(1.0)).item() == 1.0
    assert torch.fmax(torch.tensor(huge), torch.tensor(1.0)).item() == huge
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        value = torch.full((8,), NAN, dtype=torch.uint8).view(dtype)
        assert bool(value.isnan().all())


def test_without_poison_there_is_none() -> None:
    def clean() -> None:
        assert not bool(torch.empty(1 << 24).isnan().any())

    assert child(clean) == 0
