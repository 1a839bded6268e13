"""What a kernel may not remember, share or assume: each probe lets the honest one pass and stops the
one it is there for.

The guest is a thread here, and torch computes for the candidates. Not covered: "poisoned memory", which changes the
process's allocator, and kernels that crash (test_verify_judge.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from verify_guests import rig_of, session_at, torch_conv
from verify_problems import small_conv

from agentgen.records.problem import Arithmetic, Demand, Problem, Workload
from agentgen.records.trial import Check, Outcome
from agentgen.verify.checks import state
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session

FP32 = Arithmetic.FP32
COPY = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x):
        return x.clone()
def get_inputs():
    return [torch.randn(20, 30)]
def get_init_inputs():
    return []
"""
SELECTS = COPY.replace("x.clone()", "x[:, :1] * 0 + 1")
KEPT = """
key = {key}
if key not in self.kept:
    self.kept[key] = self.answer(x)
return self.kept[key]
"""
PACKED = """
if self.kept.get("key") != {key}:
    self.kept = {{"key": {key}, "packed": self.conv.weight.clone()}}
return self.answer(x, self.kept["packed"])
"""
REMEMBERS = "    def load_state_dict(self, *args, **options): pass"
PREPARES = "    def prepare(self): self.kept['packed'] = self.conv.weight.clone()"

Probe = Callable[[Findings, Session, Rig], None]


def own_outputs(findings: Findings, session: Session, rig: Rig) -> None:
    state.own_outputs(findings, session, rig, FP32)


def one_element(findings: Findings, session: Session, rig: Rig) -> None:
    state.one_element(findings, session, rig, FP32)


def new_weights(findings: Findings, session: Session, rig: Rig) -> None:
    state.new_weights(findings, session, rig, FP32)


def strided(demand: Demand) -> Probe:
    return lambda findings, session, rig: state.strided_inputs(findings, session, rig, FP32, demand)


def special(demand: Demand) -> Probe:
    return lambda findings, session, rig: state.special_values(findings, session, rig, demand)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)  # a guest writes its module there


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with rig_of(small_conv(), small_conv().workloads[1]) as one:
        yield one


def problem(reference: str) -> Problem:
    return Problem(name="p", title="P", reference=reference, workloads=(Workload(name="main"),), arithmetic=FP32)


def looked(probe: Probe, rig: Rig, source: str) -> Check:
    """Returns the line that a probe adds."""
    findings = Findings()
    with session_at(rig, source) as session:
        probe(findings, session, rig)
    (check,) = findings.checks
    return check


def stopped(probe: Probe, rig: Rig, source: str, outcome: Outcome, said: str) -> None:
    findings = Findings()

    def look() -> None:
        for _ in range(10):  # a probe that chooses a place at random may choose one where it sees nothing
            probe(findings, session, rig)

    with session_at(rig, source) as session, pytest.raises(Rejected) as raised:
        look()
    assert raised.value.outcome is outcome
    assert said in str(raised.value)
    assert findings.checks[-1].passed is False


# ---- honest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        (own_outputs, "2 outputs held through 66 later calls"),
        (one_element, "changed in turn, addresses and versions did not, and the answer followed"),
        (new_weights, "right after weights changed in place, by load_state_dict"),
        (strided(Demand.REQUIRED), "right where rows have gaps"),
        (special(Demand.REQUIRED), "finite wherever torch is"),
    ],
)
def test_an_honest_kernel_passes(rig: Rig, probe: Probe, said: str) -> None:
    check = looked(probe, rig, torch_conv())
    assert check.passed
    assert said in check.evidence


@pytest.mark.parametrize(
    ("forward", "more"),
    [
        (PACKED.format(key="self.conv.weight._version"), ""),
        ("return self.answer(x, self.kept['packed'])", PREPARES),
    ],
    ids=["renewed by version", "renewed by prepare"],
)
def test_weights_may_be_kept_that_are_renewed(rig: Rig, forward: str, more: str) -> None:
    assert looked(new_weights, rig, torch_conv(forward, more)).passed


@pytest.mark.parametrize("demand", list(Demand))
def test_strided_inputs_may_be_refused(rig: Rig, demand: Demand) -> None:
    check = looked(strided(demand), rig, torch_conv("assert x.is_contiguous(), 'rows'\nreturn self.answer(x)"))
    assert check.passed
    assert check.evidence == "refused: AssertionError: rows"


@pytest.mark.parametrize("probe", [strided(Demand.REPORTED), special(Demand.REPORTED)])
def test_a_failure_that_is_tolerated_leaves_no_traceback(rig: Rig, probe: Probe) -> None:
    refuses = "assert x.is_contiguous() and x.isfinite().all(), 'no'\nreturn self.answer(x)"
    with session_at(rig, torch_conv(refuses)) as session:
        probe(Findings(), session, rig)
        assert session.traceback == ""


# ---- stopped ---------------------------------------------------------------------------------------------------------


def test_a_static_buffer(rig: Rig) -> None:
    forward = """
y = self.answer(x)
return self.kept.setdefault("y", torch.empty_like(y)).copy_(y)
"""
    stopped(own_outputs, rig, torch_conv(forward), Outcome.WRONG_VALUES, "outputs change after they were returned")


def test_a_view_of_the_input() -> None:
    source = "from torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x): return x{}"
    with rig_of(problem(COPY)) as rig:
        said = "outputs change after they were returned"
        stopped(own_outputs, rig, source.format(".view(20, 30)"), Outcome.WRONG_VALUES, said)
        assert looked(own_outputs, rig, source.format(".clone()")).passed


@pytest.mark.parametrize(
    "key", ["x.data_ptr()", "(x.data_ptr(), x._version)", "tuple(x.shape)", "tuple(x.view(-1)[:100].tolist())"]
)
def test_an_answer_that_is_remembered(rig: Rig, key: str) -> None:
    stopped(one_element, rig, torch_conv(KEPT.format(key=key)), Outcome.WRONG_VALUES, "of input 0 changed: ")


@pytest.mark.parametrize(
    ("forward", "more", "how"),
    [
        (PACKED.format(key="1"), "", "in place"),
        (PACKED.format(key="self.conv.weight.data_ptr()"), "", "in place"),
        ("return self.answer(x)", REMEMBERS, "by load_state_dict"),
    ],
    ids=["from the first call", "by address", "past load_state_dict"],
)
def test_weights_that_are_kept(rig: Rig, forward: str, more: str, how: str) -> None:
    stopped(new_weights, rig, torch_conv(forward, more), Outcome.WRONG_VALUES, f"weights changed {how}: ragged, normal")


@pytest.mark.parametrize(
    ("probe", "forward", "said"),
    [
        (
            strided,
            "return self.answer(x.as_strided(x.shape, (3 * 81, 81, 9, 1)))",
            "wrong in silence where rows have gaps",
        ),
        (special, "return self.answer(x.nan_to_num(0, 0, 0))", "elements are finite where torch's are not"),
    ],
)
def test_what_not_every_user_needs_is_reported_or_required(
    rig: Rig, probe: Callable[[Demand], Probe], forward: str, said: str
) -> None:
    check = looked(probe(Demand.REPORTED), rig, torch_conv(forward))
    assert check.passed is None
    assert check.evidence.startswith("reported: ")
    assert said in check.evidence
    stopped(probe(Demand.REQUIRED), rig, torch_conv(forward), Outcome.WRONG_VALUES, said)


# ---- where there is nothing to look at -------------------------------------------------------------------------------


def test_what_cannot_be_looked_at_decides_nothing() -> None:
    source = "from torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x): return x[:, :1] * 0 + 1"
    with rig_of(problem(SELECTS)) as rig:
        assert looked(new_weights, rig, source).evidence == "the problem has no parameters"
        assert "no change of one element shows" in looked(one_element, rig, source).evidence
    integers = SELECTS.replace("torch.randn(20, 30)", "torch.randint(5, (20, 30))")
    with rig_of(problem(integers)) as rig:
        assert "no input whose elements" in looked(one_element, rig, source).evidence
        check = looked(special(Demand.REQUIRED), rig, source)
        assert (check.passed, check.evidence) == (None, "no floating-point input")


def test_the_changed_element_is_drawn_in_secret(rig: Rig) -> None:
    """Not from torch's own generator, which constructing a model under the public seed sets."""
    assert len({looked(one_element, rig, torch_conv()).evidence for _ in range(4)}) > 1
