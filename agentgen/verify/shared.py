"""Regions of memory that the judge shares with a guest: made here, attached in `sandbox.guest.memory`."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from agentgen.sandbox.guest.memory import Slot, create_device, map_host, release_device

Layout = tuple[tuple[int, ...], torch.dtype, tuple[int, ...] | None]
"""Shape, dtype and strides of a tensor in a region; None: contiguous."""

PAGE_BYTES = mmap.PAGESIZE
VECTOR_BYTES = 64
"""What torch's allocator aligns to on a CPU, and so what a kernel may rely on."""


class Region:
    """One allocation that holds several tensors; the guest sees the same bytes."""

    def __init__(self, name: str, tensors: Sequence[Layout], device: str) -> None:
        """Allocates zeros for `tensors`. On a CPU each ends at the end of a page that is followed by an empty one,
        which the guest cannot touch (up to 63 bytes short of it, where its start would not be aligned).

        Args:
            name: What the guest calls it.
            tensors: Shapes, dtypes and strides (None: contiguous), in order.
            device: `cpu` or `cuda:N`.
        """
        self.name = name
        self.slots: list[Slot] = []
        self._gaps: list[int] = []
        end = 0
        for shape, dtype, strides in tensors:
            slot = Slot(end, tuple(shape), str(dtype).removeprefix("torch."), strides)
            pages = -(-max(1, slot.nbytes) // PAGE_BYTES) * PAGE_BYTES
            end += pages
            if device == "cpu":
                start = (end - slot.nbytes) // VECTOR_BYTES * VECTOR_BYTES
                slot = replace(slot, offset=start)
                self._gaps.append(end)
                end += PAGE_BYTES
            self.slots.append(slot)
        self._memory, self._fd = _create(max(end, PAGE_BYTES), device)
        self.tensors: list[torch.Tensor] = [slot.view(self._memory) for slot in self.slots]

    def whole(self, place: int) -> torch.Tensor:
        """Returns tensor `place` with the gaps between its rows, as one dimension."""
        slot = self.slots[place]
        return replace(slot, shape=(slot.nbytes // self.tensors[place].itemsize,), strides=None).view(self._memory)

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
        return {
            "do": "share",
            "region": self.name,
            "nbytes": self.nbytes,
            "gaps": self._gaps,
            "slots": [vars(slot) for slot in self.slots],
        }

    def close(self) -> None:
        """Gives the memory back; the tensors must no longer be used."""
        self.tensors = []
        os.close(self._fd)
        if self._memory.is_cuda:
            torch.cuda.synchronize()
            release_device(self._memory)


def _create(nbytes: int, device: str) -> tuple[torch.Tensor, int]:
    if device != "cpu":
        return create_device(nbytes, torch.device(device).index or 0)
    fd = sealed_memory("agentgen-region", nbytes)
    return map_host(fd, nbytes), fd


def sealed_memory(name: str, nbytes: int) -> int:
    """Returns a descriptor of shared memory whose size nobody can change: a guest that shortened what the judge has
    mapped would end it by SIGBUS."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, nbytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd
