"""Which problems are refused, and that the reason is the true one."""

from __future__ import annotations

import pytest

from agentgen.records.admission import Admission
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.verify.admission import admit

MODULE = """
import torch
from torch import nn
from torch.nn import functional

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def admission(
    forward: str, init: str = "pass", inputs: str = "torch.randn(64, 32)", arithmetic: Arithmetic = Arithmetic.FP32
) -> Admission:
    reference = MODULE.format(forward=forward, init=init, inputs=inputs)
    problem = Problem(
        name="p", title="P", reference=reference, workloads=(Workload(name="main"),), arithmetic=arithmetic
    )
    return admit(problem, "cpu", arithmetic)


@pytest.mark.parametrize(
    ("forward", "init", "inputs"),
    [
        ("return torch.softmax(x, -1)", "pass", "torch.rand(64, 4096)"),
        ("return self.norm(x)", "self.norm = nn.LayerNorm(32)", "torch.randn(64, 32)"),
        ("return functional.relu(x)", "pass", "torch.randn(64, 32)"),
        ("return x.argmax(-1)", "pass", "torch.randn(64, 32)"),
        ("return (x * x).mean()", "pass", "torch.randn(64, 32)"),
        ("return x.float().mean(-1).to(x.dtype)", "pass", "torch.randn(64, 32, dtype=torch.bfloat16)"),
        ("return torch.tril(x @ x)", "pass", "torch.tril(torch.rand(32, 32))"),
        ("return functional.dropout(x, 0.5, self.training) + 1", "pass", "torch.randn(64, 32)"),
        ("return x * self.scale", "self.scale = torch.full((32,), 3.0)", "torch.randn(64, 32)"),
        ("return x @ x.T", "pass", "torch.rand(16, 16, device='cuda')"),
    ],
)
def test_a_problem_that_can_be_judged_is_admitted(forward: str, init: str, inputs: str) -> None:
    found = admission(forward, init, inputs)
    assert found.admitted, found.reasons
    assert found.families


REFUSED = {
    "zeros": ("return functional.gelu(x.mean(1, keepdim=True) - x.mean(1, keepdim=True))", "zeros passes every value"),
    "a constant": (
        "return torch.softmax(x.mean(-1, keepdim=True), -1) + 0 * x",
        "a constant passes every value family",
    ),
    "its input": ("return x.clone()", "its own input passes every value family"),
    "random": ("return functional.dropout(x, 0.5)", "is not deterministic: two calls on one input differ by"),
    "state": ("self.calls += 1; return x * self.calls", "forward draws random numbers or keeps state"),
    "changes its input": ("return x.mul_(2)", "the reference changes its inputs"),
    "no float64": ("assert x.dtype == torch.float32; return x * 2", "does not run in float64"),
    "overflow": ("return x / 0 * 1e300 * 1e300", "no value family says anything"),
    "broken": ("return x @ x", "the reference fails at workload main"),
}


@pytest.mark.parametrize(("forward", "said"), REFUSED.values(), ids=REFUSED)
def test_a_problem_that_cannot_be_judged_is_refused_for_that(forward: str, said: str) -> None:
    found = admission(forward, init="self.calls = 0")
    assert not found.admitted
    assert any(said in reason for reason in found.reasons), found.reasons
    assert all("\n" not in reason for reason in found.reasons)


def test_one_trivial_answer_is_enough_to_be_refused_and_all_are_named() -> None:
    assert admission("return x * 0").reasons == (
        "zeros passes every value family",
        "a constant passes every value family",
    )


def test_what_would_bring_the_machine_down_is_not_tried() -> None:
    found = admission("return x + 1", inputs="torch.randn(1 << 20, 1 << 20)")
    assert "take 12288.0 GiB" in found.reasons[0]
    assert found.seconds < 5


def test_what_normal_draws_do_not_tell_another_family_does() -> None:
    found = admission("return (x.abs() > 20).float().mean(-1)")
    assert found.admitted
    assert found.families[-1] == "scaled 64"
