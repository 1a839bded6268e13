"""What the gate makes of goes without a verdict."""

from __future__ import annotations

from gate_reports import PASSED, PROBLEM, refused, report

from agentgen.scoring.gate import Kind, compare
from agentgen.scoring.goes import by_case

WAITS = "ReplyPending: run r is waiting for 1 answer"


def test_goes_without_a_verdict_are_told_by_their_fault_and_its_words() -> None:
    goes = by_case(report({"a": ["DeviceLost: gone"], "b": ["NothingRecorded: no replies"], "c": [WAITS]}))
    assert [goes[case].said() for case in "abc"] == [
        "the machine failed: DeviceLost: gone",
        "no model answered: NothingRecorded: no replies",
        f"waits for answers: {WAITS}",
    ]


def test_what_waits_for_an_answer_is_not_compared_and_no_crash() -> None:
    (change,) = compare(report({"a": [WAITS]}, inputs=PROBLEM), report({"a": [PASSED]}, inputs=PROBLEM))
    assert (change.line, change.regression) == ("not compared: a: waits for answers in 1 goes", False)
    assert compare(report({"a": [PASSED]}), report({"a": [WAITS]})) == ()


def test_goes_that_are_done_are_compared_beside_those_that_wait() -> None:
    kinds = [change.kind for change in compare(report({"a": [refused(), WAITS]}), report({"a": [PASSED, PASSED]}))]
    assert kinds == [Kind.LOST, Kind.NOT_COMPARED]
