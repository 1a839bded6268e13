"""What an evaluation found: what was not as expected first, then each problem, then all that was counted."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from pydantic_evals.reporting.analyses import ConfusionMatrix, TableResult
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentgen.records.trial import EAGER
from agentgen.report import figures
from agentgen.report.layout import table
from agentgen.scoring.batch import Report, as_expected
from agentgen.scoring.evaluators import outcome
from agentgen.scoring.faults import fault
from agentgen.scoring.goes import Run
from agentgen.scoring.summaries import ERROR_RATES, FAST_P


def evaluation(report: Report) -> RenderableType:
    """Returns the whole, for people."""
    wrong = _wrong(report)
    parts: list[RenderableType] = [_wrong_table(wrong)] if wrong else []
    solved = _runs(report)
    if solved.row_count:
        parts.append(solved)
    parts += [_matrix(analysis) for analysis in report.analyses if isinstance(analysis, ConfusionMatrix)]
    tables = _tables(report)
    curves = [result for result in tables if result.title.startswith(FAST_P)]
    if curves:
        parts.append(_curves(curves))
    parts += [_rates(result) for result in tables if result not in curves]
    cases, names = len(report.cases) + len(report.failures), {name for name, *_ in wrong} - {None}
    words = "all as expected" if as_expected(report) else f"{len(names)} not as expected"
    words += ", and not all could be counted" if report.report_evaluator_failures else ""
    return Group(*parts, Text(f"{cases} {'case' if cases == 1 else 'cases'}: {words}"))


def summary(report: Report) -> dict[str, Any]:
    """Returns the whole, for programs: verdict by case, all that was counted, seconds by stage."""
    tables = _tables(report)
    return {
        "dataset": report.name,
        "as_expected": as_expected(report),
        "cases": {
            case.name: {
                "accepted": case.output.accepted,
                "outcome": case.output.outcome,
                "by": case.output.by,
                "reasons": case.output.reasons,
                "as_expected": _as_expected(case),
                "scores": {name: score.value for name, score in case.scores.items()},
                "labels": {name: label.value for name, label in case.labels.items()},
            }
            for case in report.cases
        },
        "failures": {failure.name: failure.error_message for failure in report.failures},
        "evaluator_failures": [
            {"case": case.name, "evaluator": raised.name, "error": raised.error_message}
            for case in report.cases
            for raised in case.evaluator_failures
        ],
        "report_evaluator_failures": [
            {"evaluator": raised.name, "error": raised.error_message} for raised in report.report_evaluator_failures
        ],
        "rates": {row[0]: _named(t.columns[1:], row[1:]) for t in tables if t.title == ERROR_RATES for row in t.rows},
        "tables": {t.title: [_named(t.columns, row) for row in t.rows] for t in tables if t.title != ERROR_RATES},
        "seconds": stage_seconds(report),
        **(report.experiment_metadata or {}),
    }


def stage_seconds(report: Report) -> dict[str, float]:
    """Returns the median seconds of each stage, over the kernels that were accepted: they went through all of them."""
    accepted = [case.output.seconds for case in report.cases if case.output.accepted]
    stages = dict.fromkeys(stage for seconds in accepted for stage in seconds)
    return {stage: median(seconds[stage] for seconds in accepted if stage in seconds) for stage in stages}


def _wrong(report: Report) -> list[tuple[str | None, str, str]]:
    """Returns what is not as expected, and what nobody could say: the case (None: of all), what was asked, what was
    found."""
    wrong: list[tuple[str | None, str, str]] = []
    for case in report.cases:
        for name, assertion in case.assertions.items():
            if not assertion.value:
                wrong.append((case.name, name, assertion.reason or ""))
        wrong += [(case.name, f"{raised.name} failed", raised.error_message) for raised in case.evaluator_failures]
    wrong += [(failure.name, fault(failure), failure.error_message) for failure in report.failures]
    wrong += [(None, f"{raised.name} failed", raised.error_message) for raised in report.report_evaluator_failures]
    return wrong


def _wrong_table(wrong: Sequence[tuple[str | None, str, str]]) -> Table:
    shown = table(None, "case", "not as expected", "found", wrap=("found",))
    for case, asked, found in wrong:
        shown.add_row(case or "all", asked, Text(found[:300]))
    return shown


def _runs(report: Report) -> Table:
    """Returns what became of each problem that was to be solved."""
    numbers = ("speedup", "over eager", "roofline", "candidates", "seconds", "USD")
    shown = table("problems", "problem", "outcome", *numbers, right=numbers, wrap=("problem",))
    for case in report.cases:
        found, run = case.output, case.output.run
        if run:
            shown.add_row(
                case.name,
                outcome(found),
                figures.speedup(found.against()),
                figures.speedup(found.against(EAGER)),
                figures.percent(found.roofline_fraction),
                f"{run.accepted}/{run.candidates}",
                f"{run.seconds:.0f}",
                "unknown" if run.cost_usd is None else f"{run.cost_usd:.4f}",
            )
    shown.caption = "best kernel over best baseline, with the 95% interval; candidates: accepted / evaluated"
    return shown


def _as_expected(case: Run) -> bool:
    return all(assertion.value for assertion in case.assertions.values()) and not case.evaluator_failures


def _named(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(columns, row, strict=True))


def _tables(report: Report) -> list[TableResult]:
    return [analysis for analysis in report.analyses if isinstance(analysis, TableResult)]


def _curves(tables: Sequence[TableResult]) -> RenderableType:
    """Returns fast_p against each baseline side by side: count, n, share and its interval."""
    names = [result.title for result in tables]
    shown = table(f"{FAST_P}: right, honest and more than p times as fast", "p", *names, right=("p", *names))
    for rows in zip(*(result.rows for result in tables), strict=True):
        shown.add_row(f"{rows[0][0]:g}", *(share(*row[1:]) for row in rows))
    return shown


def share(count: Any, of: Any, fraction: Any, low: Any, high: Any) -> str:
    """Returns a rate in words: count, n, share, and the interval where there is one."""
    said = f"{count} of {of}"
    if fraction is not None:
        said += f"  {fraction:4.0%}"
    return said if low is None else f"{said} [{low:.0%}, {high:.0%}]"


def _matrix(matrix: ConfusionMatrix) -> RenderableType:
    shown = table(matrix.title, "", *matrix.class_labels, right=matrix.class_labels)
    for label, row in zip(matrix.class_labels, matrix.matrix, strict=True):
        if any(row):
            shown.add_row(label, *map(str, row))
    return shown


def _rates(result: TableResult) -> RenderableType:
    shown = table(result.title, *result.columns, right=result.columns[1:])
    for row in result.rows:
        shown.add_row(*map(_cell, row))
    return shown


def _cell(value: str | float | bool | None) -> str:
    if value is None:
        return figures.NOT_MEASURED
    return f"{value:,.4f}" if isinstance(value, float) else str(value)
