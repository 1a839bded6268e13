"""Whose fault it is that a GPU's memory did not suffice: the candidate's, or that of others who hold it."""

from __future__ import annotations

from typing import Final

import torch

from agentgen.errors import DeviceLost
from agentgen.verify.judge import Judge

OTHERS_BYTES: Final = 4 << 30
"""What others may hold without being to blame: a display, the contexts of idle judges (0.6 GiB each on an H200)."""


def require_room(judge: Judge, error: torch.OutOfMemoryError) -> None:
    """Does at `main` what a check does, with no guest beside it.

    Raises:
        DeviceLost: the judge finds no memory then, either.
    """
    try:
        torch.cuda.empty_cache()
        judge.main.rehearse()
    except torch.OutOfMemoryError as again:
        raise DeviceLost(f"{judge.device} has no memory left, and no candidate that holds it: {again}") from error


def require_alone(judge: Judge) -> None:
    """Looks who else holds memory, once the guest that found none has ended. A rmsnorm that wanted 3.5 GiB was refused
    where other judges had left 2.4 of an H200's 140 GiB free.

    Raises:
        DeviceLost: others hold so much that nobody can say whether the candidate would have found enough.
    """
    if judge.device == "cpu":
        return
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(judge.device)
    others = total - free - torch.cuda.memory_reserved(judge.device) - judge.shared_bytes()
    if others > OTHERS_BYTES:
        held = f"{others / 2**30:.0f} of {total / 2**30:.0f} GiB"
        raise DeviceLost(
            f"{judge.device} had no memory for a candidate, and others hold {held}: nobody can say whose fault"
        )
