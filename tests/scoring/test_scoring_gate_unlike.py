"""What the gate says of cases and times that it cannot compare."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_reports import MACHINE, PASSED, Go, refused, report, timed

from agentgen.records.trial import Outcome
from agentgen.scoring.cases import Subject
from agentgen.scoring.gate import Change, compare, least_told, suspects
from agentgen.scoring.verdicts import Verdict

OTHER = Subject(problem=Path("p"), kernel=Path("cpp/other.py"))
UNRACED = Verdict(accepted=True, outcome=Outcome.PASSED, median_us=500.0, speedup=2.0)
"""As reports had it before races were kept."""


def lines(changes: tuple[Change, ...]) -> list[str]:
    return [change.line for change in changes]


def test_a_case_that_is_given_something_else_is_another_case() -> None:
    new, old = report({"a": [refused()], "b": [PASSED]}, inputs=OTHER), report({"a": [PASSED], "b": [PASSED]})
    new.cases[1].inputs = old.cases[1].inputs
    assert lines(compare(new, old)) == ["not compared: a: its inputs changed"]
    slow, fast = report({"a": [timed(1.0)]}, inputs=OTHER), report({"a": [timed(2.0)]})
    assert lines(compare(slow, fast)) == ["not compared: a: its inputs changed"]
    assert (suspects(slow, fast), least_told(slow, fast)) == ((), {})


def test_another_verdict_that_is_due_is_said() -> None:
    new, old = report({"a": [refused()]}, due=False), report({"a": [refused()]})
    assert "due: a: PASSED -> refused" in lines(compare(new, old))
    assert "due: a: no verdict -> PASSED" in lines(compare(old, report({"a": [refused()]}, due=None)))


def test_a_kernel_that_is_raced_no_more_is_a_regression() -> None:
    (change,) = compare(report({"a": [PASSED]}), report({"a": [timed(2.0)]}))
    assert change.line == "missing: times of a: raced -> accepted, and not raced: not compared"
    assert change.regression


@pytest.mark.parametrize("now", [timed(1.0), PASSED])
def test_times_without_races_are_said_not_to_be_compared(now: Go) -> None:
    (change,) = compare(
        report({"a": [now], "b": [now], "c": [PASSED]}), report({"a": [UNRACED], "b": [UNRACED], "c": [PASSED]})
    )
    assert change.line == "not compared: times of 2 of 3 cases: the baseline was made before races were kept"
    assert not change.regression


def test_machines_that_nobody_knows_are_not_alike() -> None:
    new, old = report({"a": [timed(1.0)]}, machine=None), report({"a": [timed(2.0)]}, machine=None)
    assert lines(compare(new, old)) == ["not compared: times: no machine -> no machine"]
    known = report({"a": [timed(2.0)]})
    assert lines(compare(new, known)) == [f"not compared: times: {MACHINE['device']} -> no machine"]


def test_another_sandbox_is_another_machine() -> None:
    new, old = report({"a": [timed(1.0)]}, sandbox="none"), report({"a": [timed(2.0)]})
    assert lines(compare(new, old)) == ["not compared: times: sandbox jail -> sandbox none"]
    assert suspects(new, old) == ()
