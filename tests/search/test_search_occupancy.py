"""Against values worked by hand; 60,000 random launches were compared with `cuda_occupancy.h` of CUDA 13.0 once."""

from __future__ import annotations

import pytest

from agentgen.search.occupancy import Occupancy, occupancy


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared_bytes", "expected"),
    [
        # 32 registers x 32 lanes = 1,024 a warp: 64 warps use all 65,536.
        ("9.0", 256, 32, 0, Occupancy(8, 64, 64, "registers and warps")),
        # 33 are rounded up to 1,280 a warp (5 pieces of 256): 12 warps a quarter, 48 in all, 6 blocks of 8.
        ("9.0", 256, 33, 0, Occupancy(6, 48, 64, "registers")),
        # 168 registers: 5,376 a warp, 3 a quarter, 12 warps: one block of 12.
        ("9.0", 384, 168, 200 << 10, Occupancy(1, 12, 64, "registers and shared memory")),
        # 48 KiB and 1 KiB of the system's: 4 blocks in 228 KiB, 3 in 164, 2 in 100.
        ("9.0", 128, 32, 48 << 10, Occupancy(4, 16, 64, "shared memory")),
        ("8.0", 128, 32, 48 << 10, Occupancy(3, 12, 64, "shared memory")),
        ("8.6", 128, 32, 48 << 10, Occupancy(2, 8, 48, "shared memory")),
        # The most that a block may have on an H100 is 227 KiB.
        ("9.0", 128, 32, 227 << 10, Occupancy(1, 4, 64, "shared memory")),
        # Small blocks: as many as there may be.
        ("9.0", 32, 16, 0, Occupancy(32, 32, 64, "blocks")),
        ("8.6", 32, 16, 0, Occupancy(16, 16, 48, "blocks")),
        ("8.9", 32, 16, 0, Occupancy(24, 24, 48, "blocks")),
        # 1,024 threads are 32 warps: two blocks in 64, one in 48.
        ("10.0", 1024, 30, 0, Occupancy(2, 64, 64, "registers and warps")),
        ("8.9", 1024, 30, 0, Occupancy(1, 32, 48, "warps")),
        # 33 threads take two warps.
        ("9.0", 33, 16, 0, Occupancy(32, 64, 64, "warps and blocks")),
    ],
)
def test_what_fits_on_a_multiprocessor(
    capability: str, threads: int, registers: int, shared_bytes: int, expected: Occupancy
) -> None:
    assert occupancy(capability, threads, registers, shared_bytes) == expected


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared_bytes"),
    [
        (None, 128, 32, 0),  # a CPU
        ("99.0", 128, 32, 0),
        ("9.0", 1025, 32, 0),
        ("9.0", 0, 32, 0),
        ("9.0", 1024, 128, 0),  # 131,072 registers
        ("9.0", 128, 32, 228 << 10),
    ],
)
def test_nothing_is_said_of_what_is_not_known_or_does_not_fit(
    capability: str | None, threads: int, registers: int, shared_bytes: int
) -> None:
    assert occupancy(capability, threads, registers, shared_bytes) is None


def test_the_share_is_of_what_a_multiprocessor_can_hold() -> None:
    found = occupancy("9.0", 256, 33, 0)
    assert found is not None
    assert found.share == 0.75
