"""Poison: has memory that a candidate allocates, and does not write, show.

Fresh memory is usually zero, and zero is often right: a forgotten border, an accumulator that is never cleared, a tail
that no block computes. Two poisons, because each hides from some reductions: NaN (bytes 0xff) passes through sums and
is lost in a maximum; 1.2e30 (bytes 0x71, about 2^100 in float32 and bfloat16) the other way round.

Not covered: blocks under 1 KiB on a CPU (glibc serves them from a cache of its own), and sizes on a GPU that no
poisoned block fits.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence

import torch

NAN, HUGE = 0xFF, 0x71
_M_PERTURB = -6
_SIZES = tuple(1 << power for power in range(9, 28))
_COPIES = 3
"""Blocks of each size: a candidate may allocate an output and some scratch memory of its size."""


def poison(byte: int, device: str, sizes: Sequence[int]) -> None:
    """Fills what will be allocated from now on.

    Args:
        byte: The pattern.
        device: `cpu`: glibc fills every block it hands out (mallopt(3), M_PERTURB). `cuda:N`: the free blocks of
            torch's allocator are filled once.
        sizes: In bytes, of the outputs; a GPU's pool gets blocks of these and of the powers of two up to 128 MiB.
    """
    if device == "cpu":
        # glibc fills with the complement; the bit above the byte keeps a pattern of 0xff from reading as "off".
        ctypes.CDLL(None).mallopt(_M_PERTURB, 0x100 | (byte ^ 0xFF))
        return
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    held: list[torch.Tensor] = []
    with contextlib.suppress(torch.OutOfMemoryError):
        for size in sorted((*sizes, *_SIZES), reverse=True):
            held += [torch.full((size,), byte, dtype=torch.uint8, device=device) for _ in range(_COPIES)]
    torch.cuda.synchronize()
