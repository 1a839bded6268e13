"""What an evaluation found: what was not as expected first, then the rates."""

from __future__ import annotations

from statistics import median
from typing import Any

from pydantic_evals.reporting.analyses import ConfusionMatrix, TableResult
from rich.console import Group, RenderableType
from rich.text import Text

from agentgen.report.layout import table
from agentgen.scoring.batch import Report, as_expected


def evaluation(report: Report) -> RenderableType:
    """Returns the whole, for people."""
    wrong = table(None, "case", "not as expected", "found", wrap=("found",))
    for case in report.cases:
        for name, assertion in case.assertions.items():
            if not assertion.value:
                wrong.add_row(case.name, name, (assertion.reason or "")[:300])
    for failure in report.failures:
        wrong.add_row(failure.name, "the machine failed", failure.error_message[:300])
    parts: list[RenderableType] = [wrong] if wrong.row_count else []
    for analysis in report.analyses:
        if isinstance(analysis, ConfusionMatrix):
            parts.append(_matrix(analysis))
        if isinstance(analysis, TableResult):
            parts.append(_rates(analysis))
    cases = len(report.cases) + len(report.failures)
    words = "all as expected" if as_expected(report) else f"{wrong.row_count} not as expected"
    return Group(*parts, Text(f"{cases} cases: {words}"))


def summary(report: Report) -> dict[str, Any]:
    """Returns the whole, for programs: verdict by case, the rates, seconds by stage."""
    return {
        "dataset": report.name,
        "as_expected": as_expected(report),
        "cases": {
            case.name: {
                "accepted": case.output.accepted,
                "outcome": case.output.outcome,
                "by": case.output.by,
                "reasons": case.output.reasons,
                "as_expected": all(assertion.value for assertion in case.assertions.values()),
            }
            for case in report.cases
        },
        "failures": {failure.name: failure.error_message for failure in report.failures},
        "rates": {row[0]: dict(zip(a.columns[1:], row[1:], strict=True)) for a in _tables(report) for row in a.rows},
        "seconds": stage_seconds(report),
        **(report.experiment_metadata or {}),
    }


def stage_seconds(report: Report) -> dict[str, float]:
    """Returns the median seconds of each stage, over the kernels that were accepted: they went through all of them."""
    accepted = [case.output.seconds for case in report.cases if case.output.accepted]
    stages = dict.fromkeys(stage for seconds in accepted for stage in seconds)
    return {stage: median(seconds[stage] for seconds in accepted if stage in seconds) for stage in stages}


def _tables(report: Report) -> list[TableResult]:
    return [analysis for analysis in report.analyses if isinstance(analysis, TableResult)]


def _matrix(matrix: ConfusionMatrix) -> RenderableType:
    shown = table(matrix.title, "", *matrix.class_labels, right=matrix.class_labels)
    for label, row in zip(matrix.class_labels, matrix.matrix, strict=True):
        if any(row):
            shown.add_row(label, *map(str, row))
    return shown


def _rates(result: TableResult) -> RenderableType:
    shown = table(result.title, *result.columns, right=result.columns[1:])
    for row in result.rows:
        shown.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row))
    return shown
