"""What an evaluation says of the problems that no model had solved."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from pydantic_evals.reporting import EvaluationReport, ReportCase, ReportCaseFailure

from agentgen.report.failures import tried_again, tried_again_line
from agentgen.scoring.cases import About, Inputs, Past, Solve, Subject
from agentgen.scoring.verdicts import Searched, Verdict

PAST = Past(cause="x, cpp on cpu: unsolved", run="r", date=date(2026, 11, 22), models=(), machine="a CPU")
KERNEL = Subject(problem=Path("x"), kernel=Path("cpp/k.py"))
RUN = Searched(id="r2", models=("new",), candidates=1, accepted=0, seconds=1.0, tokens=None, cost_usd=None)


def case(name: str, verdict: Verdict, past: Past | None = PAST) -> ReportCase[Inputs, Verdict, About]:
    return ReportCase(
        name=name,
        inputs=Solve(problem=Path("x")),
        metadata=About(devices=("cpu",), past=past),
        expected_output=Verdict(accepted=True),
        output=verdict,
        metrics={},
        attributes={},
        scores={},
        labels={},
        assertions={},
        task_duration=1.0,
        total_duration=1.0,
    )


def failure(name: str, inputs: Inputs) -> ReportCaseFailure[Inputs, Verdict, About]:
    return ReportCaseFailure(
        name=name,
        inputs=inputs,
        metadata=About(devices=("cpu",), past=PAST),
        expected_output=Verdict(accepted=True),
        error_message="DeviceLost: the device\nis gone",
        error_stacktrace="",
    )


def test_newly_solved_and_still_unsolved_are_told_apart() -> None:
    report = EvaluationReport(
        name="past failures",
        cases=[
            case("solve/a", Verdict(accepted=True, run=RUN)),
            case("solve/b", Verdict(accepted=False, run=RUN)),
            case("solve/c", Verdict(accepted=True, run=RUN)),
            case("solve/new", Verdict(accepted=True, run=RUN), past=None),
            case("kernel", Verdict(accepted=True)),
        ],
        failures=[failure("solve/d", Solve(problem=Path("x"))), failure("judge/e", KERNEL)],
    )
    found = tried_again(report)
    lost = "solve/d (the machine failed: DeviceLost: the device is gone)"
    assert found == {"newly_solved": ["solve/a", "solve/c"], "still_unsolved": ["solve/b", lost]}
    assert tried_again_line(found) == f"newly solved: solve/a, solve/c; still unsolved: solve/b, {lost}\n"


def test_nothing_is_said_where_nothing_was_tried_again() -> None:
    found = tried_again(EvaluationReport(name="x", cases=[case("kernel", Verdict(accepted=False))]))
    assert tried_again_line(found) == ""
