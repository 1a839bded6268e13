"""Whose work a call's operators are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from verify_guests import rig_of, session_at, torch_conv
from verify_problems import small_conv

from agentgen.records.problem import OwnWork
from agentgen.records.trial import Outcome
from agentgen.sandbox.guest.coverage import recording
from agentgen.verify.checks.own_work import dispatches_no_compute, listed, moved_bytes
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, Rejected

X = torch.randn(4, 6)
LINEAR = nn.Linear(6, 6)

ALLOCATE: dict[str, Callable[[], object]] = {
    "allocate": lambda: [
        torch.empty(3, 4),
        torch.empty_like(X),
        X.new_empty((2,)),
        torch.empty_strided((2, 2), (2, 1)),
    ],
    "look differently": lambda: [X.view(-1), X.reshape(3, 8), X[1:, None], X.unsqueeze(0), X.transpose(0, 1)],
    "expand and split": lambda: [X.permute(1, 0), X.expand(2, 4, 6), torch.split(X, 2), X.unbind(), X.contiguous()],
    "one value": lambda: X[0, 0].item(),
}
MOVE: dict[str, Callable[[], object]] = {
    "make": lambda: [torch.zeros_like(X), X.new_full((2,), 1.0), torch.arange(5), torch.full((2,), 3.0)],
    "copy": lambda: [X.clone(), torch.empty(4, 6).copy_(X), X.t().contiguous(), X.t().reshape(-1)],
    "cast": lambda: [X.half(), X.to(torch.float64), X.bfloat16().float()],
    "pad": lambda: torch.nn.functional.pad(X, (1, 1)),
    "join": lambda: [torch.cat([X, X]), torch.stack([X, X])],
    "fill": lambda: [torch.empty(3).fill_(2.0), torch.empty(3).zero_()],
}
COMPUTE: dict[str, Callable[[], object]] = {
    "aten.add": lambda: X + X,
    "aten.mul": lambda: X * 2,
    "aten.mm": lambda: X @ X.t(),
    "aten.addmm": lambda: LINEAR(X),
    "aten._softmax": lambda: torch.softmax(X, -1),
    "aten.convolution": lambda: torch.conv1d(X[None], torch.randn(2, 4, 3)),
    "aten.sum": lambda: X.sum(),
    "aten.relu": lambda: X.relu(),
    "aten.exp": lambda: X.exp(),
    "aten.where": lambda: torch.where(X > 0, X, 0.0),
    "aten.cumsum": lambda: X.cumsum(0),
    "aten.index": lambda: X[torch.tensor([0, 1])],
    "aten.sort": lambda: X.sort(),
    "aten.add_": lambda: X.clone().add_(1),
}


def dispatched(name: str) -> dict[str, int]:
    with torch.no_grad(), recording(True) as (seen, _):
        {**ALLOCATE, **MOVE, **COMPUTE}[name]()
    assert seen
    return seen


@pytest.mark.parametrize("name", [*ALLOCATE, *MOVE])
def test_making_and_moving_memory_is_free(name: str) -> None:
    findings = Findings()
    dispatches_no_compute(findings, dispatched(name), OwnWork.STRICT)
    (check,) = findings.checks
    assert (check.name, check.passed) == ("own work: dispatcher", True)
    assert check.evidence == "no ATen compute in a call"


@pytest.mark.parametrize("name", [*ALLOCATE, *MOVE])
def test_only_filling_and_copying_moves_memory(name: str) -> None:
    returned = dict.fromkeys(dispatched(name), 100)
    assert (moved_bytes(returned) > 0) == (name in MOVE)


def test_what_operators_return_is_counted_in_bytes() -> None:
    with torch.no_grad(), recording(True) as (_, returned):
        X.clone()
        X.clone()
    assert returned == {"aten.clone.default": 2 * X.nbytes}


@pytest.mark.parametrize("name", ["profiler.range.default", "profiler.mine", "profilerx._record_function_exit"])
def test_an_operator_of_his_own_is_no_profiler_s_mark(name: str) -> None:
    with pytest.raises(Rejected):
        dispatches_no_compute(Findings(), {name: 1}, OwnWork.STRICT)


def test_a_profiler_s_marks_are_free() -> None:
    with torch.no_grad(), recording(True) as (seen, _), torch.profiler.record_function("mine"):
        X.clone()
    assert any(name.startswith("profiler.") for name in seen)
    dispatches_no_compute(Findings(), seen, OwnWork.STRICT)


@pytest.mark.parametrize("name", COMPUTE)
def test_computing_is_not(name: str) -> None:
    seen = dispatched(name)
    findings = Findings()
    with pytest.raises(Rejected) as raised:
        dispatches_no_compute(findings, seen, OwnWork.STRICT)
    assert raised.value.outcome is Outcome.CHEATED
    assert f"{name}." in raised.value.reasons[0]
    assert findings.checks[0].passed is False


def test_a_library_may_be_used_where_the_problem_allows_it_and_the_trial_says_so() -> None:
    findings = Findings()
    dispatches_no_compute(findings, dispatched("aten.addmm"), OwnWork.LIBRARY)
    assert findings.checks[0].passed is None
    assert findings.checks[0].evidence.startswith("library compute, allowed: aten.addmm.default")


@pytest.mark.parametrize(
    "name", ["mylib.conv.default", "atenx.empty.default", "aten2.copy", "quantized.add", "", "aten"]
)
def test_what_is_not_known_is_not_free(name: str) -> None:
    with pytest.raises(Rejected):
        dispatches_no_compute(Findings(), {name: 1}, OwnWork.STRICT)
    assert not moved_bytes({name: 100})


def test_nothing_dispatched_is_own_work() -> None:
    findings = Findings()
    dispatches_no_compute(findings, {}, OwnWork.STRICT)
    assert findings.checks[0].passed


def test_long_lists_are_cut() -> None:
    assert listed("badc") == "a, b, c, d"
    assert listed("ihgfedcba") == "a, b, c, d, e, f, g, h and 1 more"


def test_without_recording_nothing_is_seen() -> None:
    with recording(False) as (seen, _):
        torch.ones(2).sum()
    assert seen == {}


def test_what_torch_computes_in_prepare_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a guest writes its module there
    prepares = "    def prepare(self): self.kept['sines'] = torch.sin(self.conv.weight)"
    with rig_of(small_conv()) as rig, session_at(rig, torch_conv(more=prepares)) as session:
        rig.draw_inputs(Family.NORMAL, 1)
        session.run(rig, 1)
        seen = session.run(rig, 1, record=True).dispatched
    assert any("conv" in name for name in seen)
    assert not any("sin" in name for name in seen), "forward's calls alone are recorded"
