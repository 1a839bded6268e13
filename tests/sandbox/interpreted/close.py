"""bf16 tensors and how close they are."""

from __future__ import annotations

import torch

BF16 = torch.bfloat16


def assert_close(actual: torch.Tensor, expected: torch.Tensor, ulps: int = 0) -> None:
    """Compares bf16 with the nearest bf16 of `expected`, in steps between neighbouring bf16 numbers."""
    assert actual.dtype == BF16, actual.dtype
    assert actual.shape == expected.shape, (actual.shape, expected.shape)

    def rank(values: torch.Tensor) -> torch.Tensor:
        bits = values.contiguous().view(torch.int16).to(torch.int32)
        return torch.where(bits < 0, -32768 - bits, bits)

    steps = (rank(actual) - rank(expected.to(BF16))).abs().max().item()
    assert steps <= ulps, f"{steps} ulp apart:\n{actual}\n{expected}"


def bf16(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(BF16)
