"""What is shown as cases end, and what the ends of all of them mean."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pydantic_evals.evaluators import EvaluationResult, EvaluatorSpec
from pydantic_evals.reporting import ReportCase, ReportCaseFailure
from rich.console import Console

from agentgen.cli.tally import Tally
from agentgen.errors import AgentgenError, BadInput, DeviceLost, ModelUnavailable, NothingRecorded, ReplyPending
from agentgen.records.trial import Outcome, Speedup
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.verdicts import Verdict

RACE = Speedup(baseline="eager", baseline_us=2.0, ratio=2.0, low=1.9, high=2.1, faster=True)
INPUTS = Solve(problem=Path("p"))


def report(*, right: bool, failures: int) -> Report:
    """Returns a report of one case about which something is asserted, and some that failed."""
    said = EvaluationResult(
        name="Correct", value=right, reason=None, source=EvaluatorSpec(name="Correct", arguments=None)
    )
    case = ReportCase[Inputs, Verdict, About](
        name="a",
        inputs=INPUTS,
        metadata=None,
        expected_output=None,
        output=Verdict(accepted=right),
        metrics={},
        attributes={},
        scores={},
        labels={},
        assertions={"Correct": said},
        task_duration=1.0,
        total_duration=1.0,
    )
    failed = ReportCaseFailure[Inputs, Verdict, About](
        name="b", inputs=INPUTS, metadata=None, expected_output=None, error_message="", error_stacktrace=""
    )
    return Report(name="r", cases=[case], failures=[failed] * failures)


@pytest.mark.parametrize(
    ("errors", "right", "code", "may_go_on"),
    [
        ([], True, 0, False),
        ([], False, 1, False),
        ([ReplyPending("")], True, 75, True),
        ([ReplyPending("")], False, 1, True),
        ([ReplyPending(""), DeviceLost("")], True, 1, True),
        ([DeviceLost("")], True, 1, True),
        ([ModelUnavailable("")], True, 1, True),
        ([NothingRecorded("")], True, 1, False),
        ([BadInput(""), KeyError("x")], True, 1, False),
    ],
)
def test_how_it_ends(errors: list[Exception], right: bool, code: int, may_go_on: bool) -> None:
    tally = Tally(Console(file=io.StringIO()), 2)
    for error in errors:
        tally.failed("b", error)
    assert tally.exit_code(report(right=right, failures=len(errors))) == code
    assert tally.may_go_on is may_go_on


def test_each_end_is_a_line_that_says_how_many_are_left() -> None:
    said = io.StringIO()
    tally = Tally(Console(file=said, width=40, markup=False, highlight=False), 4)
    tally.found("cheats/[bold]", Verdict(accepted=False, outcome=Outcome.CHEATED))
    tally.found("solve/conv2d", Verdict(accepted=True, outcome=Outcome.PASSED, races=(RACE,), speedup=2.0))
    tally.found("solve/none", Verdict(accepted=False))
    tally.failed("solve/lost", AgentgenError("a very\nlong " + "reason " * 20))
    lines = said.getvalue().splitlines()
    assert lines[:3] == [
        "[1 of 4, 3 left] cheats/[bold]: CHEATED",
        "[2 of 4, 2 left] solve/conv2d: PASSED, 2.00× [1.90, 2.10]",
        "[3 of 4, 1 left] solve/none: unsolved",
    ]
    assert lines[3].startswith("[4 of 4, 0 left] solve/lost: AgentgenError: a very long reason ")
    assert len(lines) == 4
