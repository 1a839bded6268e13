"""Secret draws: inputs by value family, and weights.

A kernel that is right on normal numbers only may skip a subtraction of the maximum, an affine weight, a bias, a mask,
or compute in too few bits. The families look where such kernels differ.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import torch


@dataclass(frozen=True)
class Distribution:
    """How one tensor is drawn in the `normal` family; the other value families replace it for floats."""

    kind: Literal["normal", "uniform", "integers"]
    mean: float = 0.0
    std: float = 1.0
    low: float = 0.0
    high: float = 1.0
    """`uniform` and `integers` draw from [low, high)."""


class Family(StrEnum):
    """How float inputs are drawn. Integer inputs keep their declared distribution in every family."""

    NORMAL = "normal"
    """As the reference's `get_inputs` draws."""
    UNIFORM = "uniform"
    """[0, 1)."""
    SHIFTED = "shifted"
    """Mean 1000, standard deviation 0.1: cancellation."""
    SMALL = "scaled 1e-3"
    LARGE = "scaled 64"
    ZEROS = "zeros"
    ONES = "ones"
    INTEGERS = "{0,1} integers"
    """With weights in {0,1} as well: where torch itself is exact, the candidate has to be."""
    ROWS = "constant rows"
    SPARSE = "sparse"
    """One value in ten is not zero."""
    SORTED = "sorted"
    """Ascending along the last dimension."""
    OUTLIERS = "outliers"
    """Every second row is zero, the others are as declared, and a few values anywhere are a thousand times as large: a
    sample of a row, or its first value, says nothing of it."""
    APART = "scales apart"
    """The first input times 1e-6, the second times 1e4, and so on."""
    APART_TOO = "scales apart, the other way"


def generator(device: torch.device) -> torch.Generator:
    """Returns a generator under a seed from the operating system, known to nobody."""
    return torch.Generator(device).manual_seed(secrets.randbits(63))


def fill(x: torch.Tensor, declared: Distribution, family: Family, source: torch.Generator, place: int = 0) -> None:
    """Fills one input in place.

    Args:
        x: Any shape and dtype.
        declared: Its distribution in the reference.
        family: The value family.
        source: Generator on x's device.
        place: Which of the inputs it is.
    """
    if not x.is_floating_point():
        x.random_(int(declared.low), int(declared.high), generator=source)
        return
    if family in (Family.APART, Family.APART_TOO):
        _declared(x, declared, source)
        x.mul_(SCALES[(place + (family is Family.APART_TOO)) % 2])
        return
    _FILLS[family](x, declared, source)


def _declared(x: torch.Tensor, declared: Distribution, source: torch.Generator) -> None:
    if declared.kind == "uniform":
        x.uniform_(declared.low, declared.high, generator=source)
    elif declared.kind == "integers":
        x.copy_(torch.randint(int(declared.low), int(declared.high), x.shape, generator=source, device=x.device))
    else:
        x.normal_(declared.mean, declared.std, generator=source)


def _integers(x: torch.Tensor, _: Distribution, source: torch.Generator) -> None:
    x.bernoulli_(0.5, generator=source)


def _rows(x: torch.Tensor, _: Distribution, source: torch.Generator) -> None:
    rows = torch.empty((*x.shape[:-1], 1), dtype=x.dtype, device=x.device).normal_(generator=source)
    x.copy_(rows.expand_as(x))


def _sparse(x: torch.Tensor, declared: Distribution, source: torch.Generator) -> None:
    _declared(x, declared, source)
    x.mul_(torch.empty_like(x).bernoulli_(0.1, generator=source))


def _sorted(x: torch.Tensor, declared: Distribution, source: torch.Generator) -> None:
    _declared(x, declared, source)
    rows = x.view(-1, x.shape[-1] if x.dim() else 1)
    for part in rows.split(max(1, _SORTED_AT_ONCE // max(1, rows.shape[1]))):
        part.copy_(part.sort(dim=-1).values)


def _outliers(x: torch.Tensor, declared: Distribution, source: torch.Generator) -> None:
    _declared(x, declared, source)
    if not x.numel():
        return
    rows = x.view(-1, x.shape[-1] if x.dim() else 1)
    rows[int(torch.randint(2, (1,), generator=source, device=x.device)) :: 2] = 0
    count = 1 + x.numel() // 4096
    places = torch.randint(x.numel(), (count,), generator=source, device=x.device)
    x.view(-1)[places] = torch.empty(count, dtype=x.dtype, device=x.device).normal_(0, OUTLIER, generator=source)


OUTLIER = 1000.0
SCALES = (1e-6, 1e4)
_SORTED_AT_ONCE = 1 << 27
"""Elements. Sorting takes 8 bytes of index and more for each: 1.9e9 elements at once would not fit an H200."""

_FILLS: dict[Family, Callable[[torch.Tensor, Distribution, torch.Generator], object]] = {
    Family.NORMAL: _declared,
    Family.UNIFORM: lambda x, _, source: x.uniform_(0, 1, generator=source),
    Family.SHIFTED: lambda x, _, source: x.normal_(1000, 0.1, generator=source),
    Family.SMALL: lambda x, _, source: x.normal_(0, 1e-3, generator=source),
    Family.LARGE: lambda x, _, source: x.normal_(0, 64, generator=source),
    Family.ZEROS: lambda x, _, __: x.zero_(),
    Family.ONES: lambda x, _, __: x.fill_(1),
    Family.INTEGERS: _integers,
    Family.ROWS: _rows,
    Family.SPARSE: _sparse,
    Family.SORTED: _sorted,
    Family.OUTLIERS: _outliers,
}


def touch(private: torch.Tensor, shared: torch.Tensor, source: torch.Generator, count: int = 4096) -> None:
    """Writes new values at `count` random places of an input, in the judge's private copy and in the shared one.

    32 us on an H200 where redrawing 1 GiB takes 610: cheap enough before every window, and while a gate spins.
    Floats are permuted rather than drawn, so that the family's distribution stays what it was.
    """
    flat = private.view(-1)
    if not flat.numel():
        return
    count = min(count, flat.numel())
    places = torch.randint(flat.numel(), (count,), generator=source, device=flat.device)
    # Of places drawn twice, index_put keeps an arbitrary one: read the values back before they go to the guest.
    flat[places] = flat[places.roll(1)]
    shared.view(-1)[places] = flat[places]


def weights(
    state: dict[str, torch.Tensor], family: Family, source: torch.Generator, signed: Container[str] = ()
) -> dict[str, torch.Tensor]:
    """Returns secret values for the parameters and buffers in `state`.

    Each keeps the mean and spread its initialisation has, so that the problem stays what it is. A constant one (the
    weight of a LayerNorm) gets a spread, or an identity kernel would pass: of its own size where it is among `signed`
    (training may turn its sign), else of 0.1. What is positive and not `signed` stays positive (a running variance).
    """
    values: dict[str, torch.Tensor] = {}
    for name, tensor in state.items():
        if not tensor.is_floating_point():
            values[name] = tensor.detach().clone()
            continue
        value = torch.empty_like(tensor.detach())
        if family is Family.INTEGERS:
            value.bernoulli_(0.5, generator=source)
        else:
            wide = tensor.detach().double()
            mean, std = wide.mean().item(), wide.std(correction=0).item()
            spread = abs(mean) if name in signed and mean else 0.1 * (abs(mean) or 1)
            value.normal_(mean, std if std > 1e-6 * max(1.0, abs(mean)) else spread, generator=source)
            if name not in signed and bool((tensor > 0).all()):
                value.abs_()
        values[name] = value
    return values
