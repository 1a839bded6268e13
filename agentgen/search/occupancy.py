"""How many warps of a kernel fit on one multiprocessor at a time, and what stands in the way of more.

The calculation is that of NVIDIA's occupancy calculator (`cuda_occupancy.h` of the CUDA toolkit); the limits are those
of the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming Guide. Not covered:
clusters, named barriers, a multiprocessor whose memory is set to prefer L1.
"""

from __future__ import annotations

from dataclasses import dataclass

_WARP = 32
_REGISTERS = 65536
"""Of a multiprocessor, and the most that a block may have."""
_REGISTER_UNIT = 256
"""Registers are given to a warp in such pieces."""
_QUARTERS = 4
"""A multiprocessor has four parts, each with its own registers."""
_SHARED_UNIT = 128
_RESERVED_BYTES = 1024
"""Of shared memory, for the system, in each block."""


@dataclass(frozen=True)
class _Limits:
    """Of one multiprocessor."""

    warps: int
    blocks: int
    shared_bytes: int


_LIMITS = {
    "8.0": _Limits(64, 32, 164 << 10),
    "8.6": _Limits(48, 16, 100 << 10),
    "8.7": _Limits(48, 16, 164 << 10),
    "8.9": _Limits(48, 24, 100 << 10),
    "9.0": _Limits(64, 32, 228 << 10),
    "10.0": _Limits(64, 32, 228 << 10),
    "10.3": _Limits(64, 32, 228 << 10),
    "12.0": _Limits(48, 24, 100 << 10),
}


@dataclass(frozen=True)
class Occupancy:
    """What fits on one multiprocessor."""

    blocks: int
    warps: int
    most_warps: int
    """That it can hold of any kernel."""
    limit: str
    """What allows no further block: "registers", "shared memory", "warps", "blocks", or several joined by "and"."""

    @property
    def share(self) -> float:
        """Warps over what a multiprocessor can hold."""
        return self.warps / self.most_warps


def occupancy(capability: str | None, threads: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """Returns what fits; None for a device whose limits are not listed here, or a block that no device takes.

    Args:
        capability: Compute capability, such as "9.0"; None: no GPU.
        threads: Of a block.
        registers: Of a thread.
        shared_bytes: Of a block, static and dynamic.
    """
    limits = _LIMITS.get(capability or "")
    if limits is None or not 0 < threads <= 1024 or not 0 <= registers <= 255 or shared_bytes < 0:
        return None
    warps = -(-threads // _WARP)
    shared = _rounded(shared_bytes + _RESERVED_BYTES, _SHARED_UNIT)
    possible = {
        "registers": _by_registers(warps, registers),
        "shared memory": limits.shared_bytes // shared,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    blocks = min(possible.values())
    limit = " and ".join(name for name, most in possible.items() if most == blocks)
    return Occupancy(blocks, blocks * warps, limits.warps, limit) if blocks else None


def _by_registers(warps: int, registers: int) -> int:
    """Returns how many blocks of so many warps find registers."""
    if not registers:
        return _REGISTERS
    of_warp = _rounded(registers * _WARP, _REGISTER_UNIT)
    if of_warp * _rounded(warps, _QUARTERS) > _REGISTERS:
        return 0
    return _REGISTERS // _QUARTERS // of_warp * _QUARTERS // warps


def _rounded(value: int, unit: int) -> int:
    return -(-value // unit) * unit
