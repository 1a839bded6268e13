"""Outputs of timed windows: the test is the guest, and writes into the rig's memory what one would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from verify_guests import rig_of
from verify_problems import small_conv

from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.verify.checks.audit import WHOLLY_EVERY, Audit
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    with rig_of(small_conv(), small_conv().workloads[1]) as one:
        one.draw_weights()
        one.draw_inputs(Family.NORMAL)
        yield one


def window(rig: Rig, audit: Audit, *, after: Callable[[], None] = lambda: None) -> None:
    """Runs one window of an honest guest."""
    audit.before()
    answer(rig)
    after()
    audit.after()
    audit.judge()


def answer(rig: Rig) -> None:
    for row, buffers in zip(rig.inputs, rig.outputs, strict=True):
        for y, buffer in zip(rig.reference.torch_outputs(row), buffers, strict=True):
            buffer.copy_(y)


def audit_of(rig: Rig, *, calls: int = 2, every: int = 1) -> tuple[Audit, Findings]:
    findings = Findings()
    return Audit(rig, Arithmetic.FP32, calls, every, findings), findings


def test_an_honest_guest_passes_window_after_window(rig: Rig) -> None:
    audit, findings = audit_of(rig)
    for _ in range(2 * WHOLLY_EVERY):
        window(rig, audit)
    assert audit.looked == 2 * WHOLLY_EVERY
    assert {check.name: check.passed for check in findings.checks} == {
        "inputs unchanged": True,
        "values while timed": True,
    }


@pytest.mark.parametrize("every", [2, 4])
def test_of_n_windows_one_at_least_is_looked_at_and_nobody_knows_which(rig: Rig, every: int) -> None:
    audit, _ = audit_of(rig, every=every)
    moments: list[int] = []
    for number in range(16 * every):
        before = audit.looked
        window(rig, audit)
        moments += [number] * (audit.looked - before)
    gaps = [b - a for a, b in itertools.pairwise([-1, *moments])]
    assert max(gaps) <= every
    assert len(set(gaps)) > 1


def test_outputs_from_before_the_inputs_changed_are_found(rig: Rig) -> None:
    """A guest that works before the gate, or replays: all 486 values are shuffled."""
    audit, findings = audit_of(rig)
    answer(rig)
    stale = [[y.clone() for y in row] for row in rig.outputs]
    audit.before()
    for row, kept in zip(rig.outputs, stale, strict=True):
        for y, old in zip(row, kept, strict=True):
            y.copy_(old)
    audit.after()
    with pytest.raises(Rejected, match="timed window 1, normal: ") as raised:
        audit.judge()
    assert raised.value.outcome is Outcome.WRONG_VALUES
    assert findings.checks[-1].name == "values while timed"


def test_outputs_that_come_after_the_clock_has_stopped_are_missing(rig: Rig) -> None:
    audit, _ = audit_of(rig)
    audit.before()
    audit.after()
    answer(rig)
    with pytest.raises(Rejected, match="NaN"):
        audit.judge()


def test_inputs_that_were_changed_in_a_timed_window(rig: Rig) -> None:
    def spoil() -> None:
        rig.inputs[0][0].view(-1)[-1] = 0

    audit, _ = audit_of(rig, calls=1)  # there is one set to look at
    with pytest.raises(Rejected, match="changed its inputs at ragged") as raised:
        window(rig, audit, after=spoil)
    assert raised.value.outcome is Outcome.CHEATED


def test_the_last_call_s_output_is_looked_at_more_often_than_others(rig: Rig) -> None:
    """The one that a guest would leave out; the others by chance, of those that the window has filled."""
    audit, _ = audit_of(rig, calls=2)

    def spoil() -> None:
        rig.outputs[1][0].zero_()

    def until_seen() -> None:
        for _ in range(20):
            window(rig, audit, after=spoil)

    with pytest.raises(Rejected):
        until_seen()
    few, _ = audit_of(rig, calls=1)
    for _ in range(6):
        window(rig, few, after=spoil)  # no call of this window writes there


def test_of_a_few_windows_one_has_inputs_drawn_anew_as_a_whole(rig: Rig) -> None:
    rig.draw_inputs(Family.NORMAL)
    audit, _ = audit_of(rig)
    same: list[bool] = []
    for _ in range(12 * WHOLLY_EVERY):
        before = rig.private[0][0].clone()
        window(rig, audit)
        same.append(bool(torch.isin(rig.private[0][0], before).all()))
    assert len(set(same)) == 2
    assert same.count(True) > same.count(False)
