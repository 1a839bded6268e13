"""The kernel that compares an output with its oracle, beside torch's own operations."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from agentgen.verify import comparison
from agentgen.verify.comparison import Compared, compare

LIMIT, FACTOR = 1.6e-5, 4.0
Drawn = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
SHAPES = [(1,), (4097,), (300, 55), (3, 1), (7, 70_001), (2, 3, 4, 129), ()]


def drawn(shape: tuple[int, ...], dtype: torch.dtype, off: float, device: str) -> Drawn:
    source = torch.Generator(device).manual_seed(7)
    oracle = torch.randn(shape, dtype=torch.float64, device=device, generator=source)
    wrong = oracle + off * torch.randn(shape, dtype=torch.float64, device=device, generator=source)
    return wrong.to(dtype), oracle, oracle.to(dtype)


def plainly(out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor) -> Compared:
    rows = oracle.reshape(-1, oracle.shape[-1] if oracle.dim() else 1)
    scale = rows.abs() + rows.square().mean(dim=1, keepdim=True).sqrt()
    size, own = (out.double().reshape(rows.shape) - rows).abs(), by_torch.double().reshape(rows.shape) - rows
    worst = (size / scale).max().item()
    beyond = ((size - FACTOR * own.abs().max()).clamp(min=0) / scale).max().item() if worst > LIMIT else worst
    sums = (rows.square().sum().item(), size.square().sum().item(), own.square().sum().item())
    return Compared(*sums, worst, beyond)


def assert_same(one: Compared, other: Compared) -> None:
    for name in Compared.__dataclass_fields__:
        near = 1e-3 if name == "beyond" else 1e-9  # what torch is off by is taken part by part
        assert_close(getattr(one, name), getattr(other, name), rtol=near, atol=1e-300, msg=f"{name}: {one} {other}")


@pytest.mark.parametrize("off", [0.0, 1e-7, 1e-2])
@pytest.mark.parametrize("shape", SHAPES)
def test_torchs_operations_say_what_the_formulas_say(shape: tuple[int, ...], off: float) -> None:
    tensors = drawn(shape, torch.float32, off, "cpu")
    assert_same(compare(*tensors, LIMIT, FACTOR), plainly(*tensors))


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("dtype", comparison.ELEMENTS)
def test_the_kernel_compiles_for_every_dtype_and_spills_nothing(dtype: torch.dtype) -> None:
    (report,) = comparison.compiled(dtype, "sm_90a").report
    assert report["spill_bytes"] == 0
    assert report["registers"] <= 64, "a multiprocessor is to hold four blocks and more"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("off", [0.0, 1e-7, 1e-2])
@pytest.mark.parametrize("dtype", comparison.ELEMENTS)
@pytest.mark.parametrize("shape", [*SHAPES, (2, 9_000_001)])
def test_the_kernel_says_what_the_formulas_say(shape: tuple[int, ...], dtype: torch.dtype, off: float) -> None:
    tensors = drawn(shape, dtype, off, "cuda")
    assert_same(compare(*tensors, LIMIT, FACTOR), plainly(*tensors))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_the_kernel_lets_nothing_pass_that_is_not_finite(wrong: float) -> None:
    out, oracle, by_torch = drawn((300, 55), torch.float32, 0.0, "cuda")
    out[299, 54] = wrong
    seen = compare(out, oracle, by_torch, LIMIT, FACTOR)
    assert not math.isfinite(seen.worst)
    assert not math.isfinite(seen.error)
