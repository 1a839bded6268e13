"""What a window takes for an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from agentgen.sandbox.guest.window import Layouts, Tensors, WrongOutput, copy_bytes, run_window


def answered(answer: Any, *buffers: torch.Tensor, layouts: Layouts | None = None) -> None:
    run_window(lambda: answer, [[]], [buffers], 1, layouts=layouts or [None] * len(buffers))()


class Subclass(torch.Tensor): ...


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda: torch.ones(3, 2), "shape", r"shape \(3, 2\), the reference \(2, 3\)"),
        (lambda: torch.ones(6), "shape", r"shape \(6,\)"),
        (lambda: torch.ones(2, 3).double(), "dtype", "torch.float64, the reference torch.float32"),
        (lambda: torch.ones(3, 2).t(), "layout", r"strides \(1, 2\); the reference's output is contiguous"),
        (lambda: torch.ones(2, 1).expand(2, 3), "layout", r"strides \(1, 0\)"),
        (lambda: torch.ones(2, 6)[:, ::2], "layout", r"strides \(6, 2\)"),
        (lambda: torch.ones(2, 3).to("meta"), "layout", "on meta"),
        (lambda: torch.ones(2, 3).requires_grad_(), "layout", "requires grad"),
        (lambda: torch.ones(2, 3).as_subclass(Subclass), "type", "Subclass, not a plain torch.Tensor"),
        (lambda: torch.nn.Parameter(torch.ones(2, 3)), "type", "Parameter"),
        (lambda: None, "type", "NoneType"),
        (lambda: [torch.ones(2, 3)] * 2, "shape", "this returned 2 values"),
    ],
)
def test_an_answer_of_another_kind(make: Callable[[], Any], kind: str, said: str) -> None:
    buffer = torch.zeros(2, 3)
    with pytest.raises(WrongOutput, match=said) as raised:
        answered(make(), buffer)
    assert raised.value.kind == kind
    assert not buffer.any(), "nothing is copied"


def test_an_answer_is_made_under_no_grad() -> None:
    weight = torch.ones(2, 3, requires_grad=True)
    buffer = torch.zeros(2, 3)
    run_window(lambda: weight * 2, [[]], [[buffer]], 1)()
    assert torch.equal(buffer, torch.full((2, 3), 2.0))


TRANSPOSED = torch.arange(6.0).view(3, 2).t()


@pytest.mark.parametrize("answer", [TRANSPOSED, TRANSPOSED.contiguous()], ids=["as torch's", "contiguous"])
def test_strides_are_those_of_torch_s_own_output_or_contiguous(answer: torch.Tensor) -> None:
    buffer = torch.empty(2, 3)
    answered(answer, buffer, layouts=[(1, 2)])
    assert torch.equal(buffer, TRANSPOSED)


def test_other_strides_than_torch_s_are_refused() -> None:
    with pytest.raises(WrongOutput, match=r"returned strides \(6, 2\); the reference's are \(1, 2\)"):
        answered(torch.ones(2, 6)[:, ::2], torch.empty(2, 3), layouts=[(1, 2)])


def test_a_baseline_is_copied_as_it_lies() -> None:
    buffer = torch.empty(2, 3)
    run_window(lambda: TRANSPOSED, [[]], [[buffer]], 1, keep=copy_bytes)()
    assert torch.equal(buffer.view(-1), torch.arange(6.0))


@pytest.mark.parametrize(
    ("answer", "buffer"),
    [
        (torch.ones(1, 4).as_strided((1, 4), (77, 1)), torch.zeros(1, 4)),
        (torch.ones(0, 4).as_strided((0, 4), (1, 9)), torch.zeros(0, 4)),
        (torch.tensor(1.0), torch.zeros(())),
    ],
    ids=["one row", "empty", "no dimension"],
)
def test_the_stride_of_a_dimension_without_steps_is_anything(answer: torch.Tensor, buffer: torch.Tensor) -> None:
    answered(answer, buffer)
    assert torch.equal(answer, buffer)


def test_calls_rotate_over_inputs_and_outputs() -> None:
    inputs = [[torch.full((1,), float(k))] for k in range(3)]
    outputs = [[torch.zeros(1)] for _ in range(2)]
    seconds = run_window(torch.nn.Threshold(-1, 0), inputs, outputs, 5)()
    assert [y.item() for (y,) in outputs] == [1.0, 0.0]  # of the fifth call and the fourth
    assert seconds > 0


def test_outputs_can_be_kept_instead_of_copied() -> None:
    held: list[tuple[Tensors, Tensors]] = []
    buffer = torch.zeros(2)

    def keep(sources: Tensors, targets: Tensors) -> None:
        held.append((sources, targets))

    run_window(lambda: torch.ones(2), [[]], [[buffer]], 2, keep=keep)()
    assert not buffer.any()
    assert [(len(sources), targets[0] is buffer) for sources, targets in held] == [(1, True)] * 2
