"""What is asserted of a verdict, and what is counted over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_evals.evaluators import (
    EvaluationReason,
    Evaluator,
    EvaluatorContext,
    ReportEvaluator,
    ReportEvaluatorContext,
)
from pydantic_evals.reporting.analyses import ConfusionMatrix, TableResult

from agentgen.scoring.rates import Rate

WORDS = {True: "accepted", False: "refused"}


@dataclass
class Decision(Evaluator[Any, Any, Any]):
    """Is it accepted, or refused, as it is to be?"""

    def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> EvaluationReason:
        """Says what came of it."""
        found, wanted = ctx.output, _due(ctx)
        said = "; ".join(found.reasons)
        return EvaluationReason(
            found.accepted is wanted.accepted, f"{_outcome(found)}: {said}" if said else _outcome(found)
        )


@dataclass
class Cause(Evaluator[Any, Any, Any]):
    """Is it refused by the check that is there for it? The screen may always come first."""

    def evaluate(self, ctx: EvaluatorContext[Any, Any, Any]) -> EvaluationReason:
        """Says which checks failed."""
        found, wanted = ctx.output, _due(ctx)
        right = found.accepted or found.caused_by(wanted) or "screen" in found.by
        return EvaluationReason(right, f"by {', '.join(found.by) or _outcome(found)}")


@dataclass
class Confusion(ReportEvaluator[Any, Any, Any]):
    """What was expected against what was found; a case that the machine failed is a column of its own."""

    def evaluate(self, ctx: ReportEvaluatorContext[Any, Any, Any]) -> ConfusionMatrix:
        """Counts."""
        labels = [*WORDS.values(), "failed"]
        matrix = [[0, 0, 0] for _ in WORDS]
        for case in ctx.report.cases:
            matrix[_row(case)][labels.index(WORDS[case.output.accepted])] += 1
        for failure in ctx.report.failures:
            matrix[_row(failure)][2] += 1
        rows = [*matrix, [0, 0, 0]]
        return ConfusionMatrix(title="expected (rows) against found (columns)", class_labels=labels, matrix=rows)


@dataclass
class ErrorRates(ReportEvaluator[Any, Any, Any]):
    """False accepts and false rejects, each with its n and an exact 95% interval."""

    def evaluate(self, ctx: ReportEvaluatorContext[Any, Any, Any]) -> TableResult:
        """Counts."""
        rows: list[list[str | int | float | bool | None]] = []
        for name, wanted in (("false accepts", False), ("false rejects", True)):
            due = [case for case in ctx.report.cases if _due(case).accepted is wanted]
            rate = Rate(sum(case.output.accepted is not wanted for case in due), len(due))
            rows.append([name, rate.count, rate.of, *rate.interval()])
        return TableResult(title="error rates", columns=["", "count", "of", "95% from", "to"], rows=rows)


EVALUATORS = (Decision, Cause)
REPORT_EVALUATORS = (Confusion, ErrorRates)


def _due(case: Any) -> Any:
    if case.expected_output is None:
        raise ValueError(f"case {case.name} has no expected_output")
    return case.expected_output


def _outcome(found: Any) -> str:
    return found.outcome.value if found.outcome else "unsolved"


def _row(case: Any) -> int:
    return list(WORDS).index(_due(case).accepted)
