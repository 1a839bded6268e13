"""Reports of cases that end as they are told to, and what is counted of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_evals import Case, Dataset

from agentgen.errors import DeviceLost
from agentgen.report.evaluation import summary
from agentgen.scoring import batch
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.verdicts import Verdict

LOST: None = None
"""Stands for a case that the machine fails."""


def report_of(
    ends: Mapping[str, Sequence[Verdict | None]], *evaluators: Any, wanted: Mapping[str, Verdict] | None = None
) -> batch.Report:
    """Returns pydantic-evals' own report of cases that end so, each go at one differently."""
    left = {name: list(verdicts) for name, verdicts in ends.items()}

    async def end(inputs: Inputs) -> Verdict:
        found = left[str(inputs.problem)].pop(0)
        if found is None:
            raise DeviceLost("the device is gone")
        return found

    dataset = Dataset[Inputs, Verdict, About](
        name="made",
        cases=[
            Case(name=name, inputs=Solve(problem=Path(name)), expected_output=(wanted or {}).get(name)) for name in ends
        ],
        report_evaluators=evaluators,
    )
    goes = max(map(len, ends.values()), default=1)
    report = dataset.evaluate_sync(end, progress=False, max_concurrency=1, repeat=goes)
    assert not report.report_evaluator_failures
    return report


def table(report: batch.Report, title: str) -> list[dict[str, Any]]:
    return summary(report)["tables"][title]


def column(report: batch.Report, title: str, name: str) -> list[Any]:
    return [row[name] for row in table(report, title)]
