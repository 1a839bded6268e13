"""The guest's hand on the guarding allocator (guard.c), in a zygote that was started with it (`sandbox.guard`).

Not covered: a candidate that switches it off, or allocates by mmap; see guard.c for what the allocator itself leaves
out. A GPU's memory is compute-sanitizer's to watch.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

NAN, HUGE = 0xFF, 0x71
"""Bytes of fresh memory: NaN in every float type, or 1.2e30 in float32 and bfloat16."""
_SIDES = {"off": 0, "after": 1, "before": 2}


@dataclass(frozen=True)
class Counts:
    """What the allocator has done so far."""

    guarded: int
    """Blocks that lay between walls."""
    passed_by: int
    """Blocks that should have, but for a limit: too many alive, no address space, an alignment beyond a page."""


def switch(side: str, fill: int) -> None:
    """Guards what is allocated from now on.

    Args:
        side: `after`: blocks end at a wall, which finds reads and writes past the end. `before`: they start at one,
            which finds those before the start. `off`.
        fill: The byte that fresh memory is filled with: `NAN` or `HUGE`.

    Raises:
        RuntimeError: This process was started without the library.
    """
    _library().agentgen_guard(_SIDES[side], fill)


def check() -> None:
    """Looks for writes between living blocks and their walls. Ends the process by SIGABRT, with a line on stderr, if
    there are any."""
    _library().agentgen_guard_check()


def counts() -> Counts:
    """Returns how many blocks were guarded."""
    numbers = (ctypes.c_ulong * 2)()
    _library().agentgen_guard_counts(numbers)
    return Counts(*numbers)


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    if not hasattr(library, "agentgen_guard"):
        raise RuntimeError("this process was started without the guarding allocator")
    return library
