"""Why a case has no verdict is said by what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_evals import Case, Dataset

from agentgen import errors
from agentgen.report.evaluation import summary
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.faults import fault
from agentgen.scoring.summaries import Outcomes
from agentgen.scoring.verdicts import Verdict

FAULTS: list[tuple[Exception, str]] = [
    (errors.ReplyPending("run r is waiting for 1 answer"), "waits for answers"),
    (errors.NothingRecorded("nothing"), "no model answered"),
    (errors.ModelUnavailable("refused"), "no model answered"),
    (errors.UnknownProblem("none"), "cannot be judged"),
    (errors.ReferenceInvalid("p: the reference fails"), "cannot be judged"),
    (errors.DeviceLost("gone"), "the machine failed"),
    (KeyError("x"), "the machine failed"),
    (OSError("annotations: no space"), "the machine failed"),
]


@pytest.mark.parametrize(("error", "word"), FAULTS, ids=lambda value: type(value).__name__)
def test_each_fault_is_named_by_what_it_is_and_counted_so(error: Exception, word: str) -> None:
    async def end(_: Inputs) -> Verdict:
        raise error

    case = Case[Inputs, Verdict, About](name="a", inputs=Solve(problem=Path("p")))
    dataset = Dataset[Inputs, Verdict, About](name="made", cases=[case], report_evaluators=[Outcomes()])
    report = dataset.evaluate_sync(end, progress=False)
    assert [fault(failure) for failure in report.failures] == [word]
    assert [row["outcome"] for row in summary(report)["tables"]["outcomes"]] == [word]
