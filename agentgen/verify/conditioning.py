"""How well conditioned a draw is: what one ulp of its inputs moves the float64 oracle by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

PART_ELEMENTS = {"cuda": 1 << 26, "cpu": 1 << 15}
"""Looked at in one go, by device: each takes some ten float64 temporaries, on a CPU those of its cache."""


@dataclass(frozen=True)
class Moved:
    """What one ulp of the inputs moved the oracle by."""

    squares: float
    """Sum of squares."""
    rows: torch.Tensor
    """Root mean square over the elements that moved of each last-dimension row, that dimension kept with size 1: after
    a ReLU a row may have a single one, and its zeros say nothing of the size of its terms."""

    ulp: float | None = None
    """Of the inputs, relative; None: as of the output."""

    @staticmethod
    def between(oracle: torch.Tensor, other: torch.Tensor) -> Moved:
        """Compares two oracles; in parts, because each may be a tenth of a GPU's memory."""
        if not oracle.is_floating_point() or not oracle.numel():
            return Moved(0.0, torch.zeros(()))
        squares = 0.0
        rows: list[torch.Tensor] = []
        for a, b in zip(parts_of(oracle, oracle), parts_of(other, oracle), strict=True):
            change = b - a
            squares += change.square().sum().item()
            moved = (change != 0).sum(dim=-1, keepdim=True).clamp(min=1)
            rows.append((change.square().sum(dim=-1, keepdim=True) / moved).sqrt())
        return Moved(squares, torch.cat(rows))


def parts_of(x: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns x, a tensor of the shape of `like` or one value a row of it, in parts of as many rows as need little
    memory beside it."""
    width = like.shape[-1] if like.dim() else 1
    own = width if x.shape == like.shape else 1
    return x.reshape(like.numel() // max(1, width), own).split(max(1, PART_ELEMENTS[x.device.type] // max(1, width)))


def lift(x: torch.Tensor) -> torch.Tensor:
    """Returns x with every element moved up by one ulp of its dtype; integers as they are."""
    if not x.is_floating_point():
        return x
    return torch.nextafter(x, torch.full((), math.inf, dtype=x.dtype, device=x.device))


def nudge(x: torch.Tensor, source: torch.Generator) -> torch.Tensor:
    """Returns x with every element moved by one ulp of its dtype, up or down at random; integers as they are."""
    return _moved(x, x.shape, source)


def nudge_rows(x: torch.Tensor, source: torch.Generator) -> torch.Tensor:
    """Returns x with every element moved by one ulp of its dtype, all of a last-dimension row up or all down at
    random; integers as they are."""
    return _moved(x, (*x.shape[:-1], 1) if x.dim() else (), source)


def _moved(x: torch.Tensor, signs: tuple[int, ...], source: torch.Generator) -> torch.Tensor:
    if not x.is_floating_point():
        return x
    up = torch.empty(signs, dtype=torch.float32, device=x.device).bernoulli_(0.5, generator=source) > 0
    infinity = torch.full((), math.inf, dtype=x.dtype, device=x.device)
    return torch.where(up, torch.nextafter(x, infinity), torch.nextafter(x, -infinity))
