"""What goes without a verdict are called, and what the gate makes of them."""

from __future__ import annotations

import pytest
from gate_reports import PASSED, PROBLEM, refused, report

from agentgen.scoring.gate import Kind, compare
from agentgen.scoring.goes import by_case, may_pass, waits

WAITS = "ReplyPending: run r is waiting for 1 answer"


@pytest.mark.parametrize(
    ("message", "passing", "waiting", "said"),
    [
        ("MachineFailure: no verdict within 60 s", True, False, "the machine failed"),
        ("DeviceLost: gone", True, False, "the machine failed"),
        ("ModelUnavailable: refused", True, False, "no verdict"),
        (WAITS, True, True, "waits"),
        ("NothingRecorded: no replies", False, False, "no verdict"),
        ("ReferenceInvalid: it does not run", False, False, "no verdict"),
        ("KeyError: 'DeviceLost'", False, False, "no verdict"),
    ],
)
def test_what_a_failure_is_called(message: str, passing: bool, waiting: bool, said: str) -> None:
    found = report({"a": [message]})
    (failure,) = found.failures
    assert (may_pass(failure), waits(failure)) == (passing, waiting)
    assert by_case(found)["a"].said() == f"{said}: {message}"


def test_what_waits_for_an_answer_is_not_compared_and_no_crash() -> None:
    (change,) = compare(report({"a": [WAITS]}, inputs=PROBLEM), report({"a": [PASSED]}, inputs=PROBLEM))
    assert (change.line, change.regression) == ("not compared: a: waits for answers in 1 goes", False)
    assert compare(report({"a": [PASSED]}), report({"a": [WAITS]})) == ()


def test_goes_that_are_done_are_compared_beside_those_that_wait() -> None:
    kinds = [change.kind for change in compare(report({"a": [refused(), WAITS]}), report({"a": [PASSED, PASSED]}))]
    assert kinds == [Kind.LOST, Kind.NOT_COMPARED]
