"""Why a case has no verdict is said by what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_evals import Case, Dataset

from agentgen import errors
from agentgen.report.evaluation import summary
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.faults import fault, may_pass, waits
from agentgen.scoring.summaries import Outcomes
from agentgen.scoring.verdicts import Verdict

FAULTS: list[tuple[Exception, str, bool]] = [
    (errors.ReplyPending("run r is waiting for 1 answer"), "waits for answers", True),
    (errors.NothingRecorded("nothing"), "no model answered", False),
    (errors.ModelUnavailable("refused"), "no model answered", True),
    (errors.UnknownProblem("none"), "cannot be judged", False),
    (errors.ReferenceInvalid("p: the reference fails"), "cannot be judged", False),
    (errors.MachineFailure("no verdict within 60 s"), "the machine failed", True),
    (errors.DeviceLost("gone"), "the machine failed", True),
    (KeyError("DeviceLost"), "the machine failed", False),
    (OSError("annotations: no space"), "the machine failed", False),
]


@pytest.mark.parametrize(("error", "word", "passing"), FAULTS, ids=lambda value: type(value).__name__)
def test_each_fault_is_named_by_what_it_is_and_counted_so(error: Exception, word: str, passing: bool) -> None:
    async def end(_: Inputs) -> Verdict:
        raise error

    case = Case[Inputs, Verdict, About](name="a", inputs=Solve(problem=Path("p")))
    dataset = Dataset[Inputs, Verdict, About](name="made", cases=[case], report_evaluators=[Outcomes()])
    report = dataset.evaluate_sync(end, progress=False)
    (failure,) = report.failures
    assert (fault(failure), may_pass(failure)) == (word, passing)
    assert waits(failure) is isinstance(error, errors.ReplyPending)
    assert [row["outcome"] for row in summary(report)["tables"]["outcomes"]] == [word]
