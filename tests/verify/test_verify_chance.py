"""What comes out differently for the same content: the last bits may, by chance or by order, and nothing more.

The guest is a thread here, and torch computes for the candidates. A kernel on a GPU is in test_verify_gpu.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verify_guests import rig_of, session_at, torch_conv
from verify_problems import small_conv

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Check, Depth, Outcome
from agentgen.verify.checks.chance import same_answer
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.judge import Judge
from agentgen.verify.rig import Rig

LONGEST_S = 60.0
"""More than any of these takes to be found out."""
LAST_BITS = "return self.answer(x) * (1 + (self.calls % 2) * 2e-7"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)  # a guest writes its module there


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with rig_of(small_conv(), small_conv().workloads[1]) as one:
        yield one


def seen(rig: Rig, forward: str, seconds: float = 0.0) -> tuple[Outcome, Check]:
    """Returns how the check ends, and its line."""
    findings, outcome = Findings(), Outcome.PASSED
    with session_at(rig, torch_conv(forward)) as session:
        try:
            same_answer(findings, session, rig, Arithmetic.FP32, seconds)
        except Rejected as rejected:
            outcome = rejected.outcome
    (check,) = findings.checks
    assert check.passed is (outcome is Outcome.PASSED)
    return outcome, check


def test_the_same_bits(rig: Rig) -> None:
    outcome, check = seen(rig, "return self.answer(x)")
    assert outcome is Outcome.PASSED
    assert check.evidence == "4 calls at 2 addresses gave the same bits"


def test_one_call_follows_another_as_long_as_is_said(rig: Rig) -> None:
    outcome, check = seen(rig, "return self.answer(x)", 0.2)
    assert outcome is Outcome.PASSED
    assert int(check.evidence.split()[0].replace(",", "")) > 4


def test_last_bits_may_differ_within_the_gates(rig: Rig) -> None:
    outcome, check = seen(rig, f"{LAST_BITS})")
    assert outcome is Outcome.PASSED
    assert check.evidence == "18 of 36 calls differ in bits; all are within the gates"


@pytest.mark.parametrize(
    ("share", "call"),
    [
        ("(self.calls % 2)", "call 1"),
        ("(self.calls == 1)", "call 1"),
        ("(self.calls == 30)", "call 30"),
    ],
    ids=["every second", "the first, that others are compared with", "one of thirty"],
)
def test_more_than_last_bits_may_not(rig: Rig, share: str, call: str) -> None:
    outcome, check = seen(rig, f"{LAST_BITS} + {share} * 1e-3)")
    assert outcome is Outcome.NONDETERMINISTIC
    assert check.evidence.startswith(f"{call}, ")
    assert "on the same content" in check.evidence


def test_wrong_once_in_many_calls_that_agree_in_every_bit(rig: Rig) -> None:
    forward = "return self.answer(x) * (2.0 if self.calls == 333 else 1.0)"
    assert seen(rig, forward)[0] is Outcome.PASSED
    outcome, check = seen(rig, forward, LONGEST_S)
    assert outcome is Outcome.NONDETERMINISTIC
    assert check.evidence.startswith("call 333, at set 0, on the same content")


def test_a_kernel_is_called_on_with_the_weights_that_the_reference_has_now(rig: Rig) -> None:
    """Other guests are audited and timed in between, with weights of their own."""
    candidate = Candidate(source=torch_conv(f"{LAST_BITS})"), language=Language.CUDA)

    def gates(_: Candidate) -> Arithmetic:
        return Arithmetic.FP32

    judge: Any = SimpleNamespace(device="cuda:0", main=rig, gates=gates)
    findings = Findings()
    with session_at(rig, candidate.source) as session:
        rig.draw_weights()
        Judge.call_on(judge, session, candidate, findings, Depth.JUDGE)
    (check,) = findings.checks
    assert check.passed
    assert "differ in bits; all are within the gates" in check.evidence
