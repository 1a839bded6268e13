"""Regions of memory that the judge shares with a guest: made here, attached in `sandbox.guest.memory`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import torch

from agentgen.sandbox.guest.memory import DTYPES, Slot, create_device, map_host, release_device

ALIGNMENT = 4096
"""Bytes. A CPU page; on a GPU more than any vector load needs."""


class Region:
    """One allocation that holds several tensors; the guest sees the same bytes."""

    def __init__(self, name: str, tensors: Sequence[tuple[tuple[int, ...], torch.dtype]], device: str) -> None:
        """Allocates zeros for `tensors` (shape, dtype).

        Args:
            name: What the guest calls it.
            tensors: Shapes and dtypes, in order.
            device: `cpu` or `cuda:N`.
        """
        self.name = name
        self.slots: list[Slot] = []
        end = 0
        for shape, dtype in tensors:
            self.slots.append(Slot(end, tuple(shape), str(dtype).removeprefix("torch.")))
            end += -(-max(1, math.prod(shape) * dtype.itemsize) // ALIGNMENT) * ALIGNMENT
        self._memory, self._fd = _create(max(end, ALIGNMENT), device)
        self.tensors: list[torch.Tensor] = [slot.view(self._memory) for slot in self.slots]

    @property
    def nbytes(self) -> int:
        """Size, with padding."""
        return self._memory.numel()

    @property
    def fd(self) -> int:
        """The descriptor to send; stays the region's."""
        return self._fd

    def message(self) -> dict[str, Any]:
        """Returns the `share` command."""
        slots = [{"offset": slot.offset, "shape": list(slot.shape), "dtype": slot.dtype} for slot in self.slots]
        return {"do": "share", "region": self.name, "nbytes": self.nbytes, "slots": slots}

    def close(self) -> None:
        """Gives the memory back; the tensors must no longer be used."""
        self.tensors = []
        os.close(self._fd)
        if self._memory.is_cuda:
            torch.cuda.synchronize()
            release_device(self._memory)


def dtype_named(name: str) -> torch.dtype:
    """Returns torch's dtype for "float32"."""
    return DTYPES[name]


def _create(nbytes: int, device: str) -> tuple[torch.Tensor, int]:
    if device != "cpu":
        return create_device(nbytes, torch.device(device).index or 0)
    fd = os.memfd_create("agentgen-region", os.MFD_CLOEXEC)
    os.ftruncate(fd, nbytes)
    return map_host(fd, nbytes), fd
