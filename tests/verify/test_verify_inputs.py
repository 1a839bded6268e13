"""Inputs as `get_inputs` draws them: structure is kept in every family, values are fresh and secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from agentgen.errors import ReferenceInvalid
from agentgen.verify.draws import Family, generator
from agentgen.verify.inputs import draw, signature

SOURCE = generator(torch.device("cpu"))


def first(get_inputs: Callable[[], Any], family: Family = Family.NORMAL) -> torch.Tensor:
    return draw(get_inputs, "cpu", family, SOURCE).tensors[0]


@pytest.mark.parametrize(
    ("get_inputs", "mean", "std"),
    [
        (lambda: [torch.randn(64, 256)], 0, 1),
        (lambda: [torch.rand((64, 256))], 0.5, 12**-0.5),
        (lambda: [torch.rand(size=(64, 256), dtype=torch.float64)], 0.5, 12**-0.5),
        (lambda: [torch.normal(3.0, 0.5, size=(64, 256))], 3, 0.5),
        (lambda: [torch.normal(mean=3.0, std=0.5, size=(64, 256))], 3, 0.5),
        (lambda: [torch.empty(64, 256).uniform_(-1, 3)], 1, 4 * 12**-0.5),
        (lambda: [torch.empty(64, 256).normal_(std=2)], 0, 2),
        (lambda: [torch.randn_like(torch.empty(64, 256)) * 0.1 + 1000], 1000, 0.1),
        (lambda: [torch.randint(10, (64, 256)).float()], 4.5, 8.25**0.5),
        (lambda: [torch.randint(low=4, high=6, size=(64, 256)).float()], 4.5, 0.5),
        (lambda: [torch.randint_like(torch.empty(64, 256), 4, 6)], 4.5, 0.5),
    ],
)
def test_the_normal_family_is_what_get_inputs_draws(get_inputs: Callable[[], Any], mean: float, std: float) -> None:
    x = first(get_inputs)
    assert x.shape == (64, 256)
    assert x.double().mean().item() == pytest.approx(mean, abs=6 * std / x.numel() ** 0.5)
    assert x.double().std().item() == pytest.approx(std, rel=0.05)
    assert not torch.equal(x, first(get_inputs))


@pytest.mark.parametrize("family", Family)
def test_structure_holds_in_every_family(family: Family) -> None:
    upper = first(lambda: [torch.triu(torch.randn(16, 16))], family)
    assert torch.equal(upper, upper.triu())
    row_sums = first(lambda: [torch.rand(8, 32).softmax(-1)], family).sum(-1)
    assert torch.allclose(row_sums, torch.ones(8))
    symmetric = first(lambda: [(lambda a: a + a.T)(torch.randn(16, 16))], family)
    assert torch.equal(symmetric, symmetric.T)
    signs = first(lambda: [torch.randint(0, 2, (64,)) * 2 - 1], family)
    assert set(signs.tolist()) == {-1, 1}


def test_families_replace_the_leaves() -> None:
    assert first(lambda: [2 * torch.randn(4, 4)], Family.ONES).unique().tolist() == [2.0]
    assert first(lambda: [torch.empty(4, 4).uniform_()], Family.ZEROS).count_nonzero() == 0
    assert first(lambda: [torch.randn(100)], Family.SHIFTED).mean().item() == pytest.approx(1000, abs=1)


def test_other_randomness_is_fresh_and_leaves_the_processs_own_alone() -> None:
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    one, two = (first(lambda: [torch.randperm(1000)]) for _ in range(2))
    assert not torch.equal(one, two)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_device_written_into_the_reference_gives_way() -> None:
    made = first(lambda: [torch.rand(3, 4, device="cuda", dtype=torch.float16).cuda()])
    assert made.device.type == "cpu"
    assert made.dtype == torch.float16


def with_first_row_zero(x: torch.Tensor) -> torch.Tensor:
    x[0] = 0
    return x


@pytest.mark.parametrize(
    ("get_inputs", "free"),
    [
        (lambda: [torch.randn(4), torch.randint(0, 5, (4,))], True),
        (lambda: [torch.randn(4), 2.5], True),
        (lambda: [torch.randn(4) + 1], False),
        (lambda: [torch.randn(4, 4).triu_()], False),
        (lambda: [with_first_row_zero(torch.randn(4, 4))], False),
        (lambda: [torch.randn(4), torch.arange(4)], False),
    ],
)
def test_values_may_be_exchanged_only_where_nothing_was_done_to_them(get_inputs: Callable[[], Any], free: bool) -> None:
    assert draw(get_inputs, "cpu", Family.NORMAL, SOURCE).free is free


def test_a_signature_puts_numbers_and_tensors_in_their_places() -> None:
    made = signature(lambda: [torch.randn(2, 3), 3.14, torch.randint(0, 9, (4,)), None])
    assert made.specs == (((2, 3), torch.float32), ((4,), torch.int64))
    assert made.rows(6) == [6, {"value": 3.14}, 7, {"value": None}]
    assert made.arguments(["a", "b"]) == ["a", 3.14, "b", None]


def test_a_signature_draws_nothing() -> None:
    assert signature(lambda: [torch.rand(1 << 40)]).specs == (((1 << 40,), torch.float32),)


def test_what_depends_on_values_is_drawn_after_all() -> None:
    assert signature(lambda: [torch.ones(3, 3).nonzero()]).specs == (((9, 2), torch.int64),)


@pytest.mark.parametrize("made", [[[torch.ones(2)]], {"x": torch.ones(2)}, [float("nan")], torch.ones(2)])
def test_what_cannot_be_passed_on_is_refused(made: Any) -> None:
    with pytest.raises(ReferenceInvalid, match="get_inputs"):
        signature(lambda: made)
