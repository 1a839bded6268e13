"""What is counted over all cases of an evaluation.

Every case is counted, each go of it where there are several; one that has no verdict counts as not solved and is shown
as a class of its own (`scoring.faults`). The judge's error rates are of its verdicts, with the number of cases without
one beside them. Each rate comes with its n, and with an exact 95% interval where there is one go at each case: several
goes at one problem are no independent draws, and theirs would be too narrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pydantic_evals.evaluators import ReportEvaluator, ReportEvaluatorContext
from pydantic_evals.reporting import EvaluationReport
from pydantic_evals.reporting.analyses import (
    ConfusionMatrix,
    LinePlot,
    LinePlotCurve,
    LinePlotPoint,
    ReportAnalysis,
    TableResult,
)

from agentgen.records.trial import EAGER, Outcome
from agentgen.scoring.evaluators import NO_KERNEL, REFUSED, due, outcome, outcome_due
from agentgen.scoring.faults import FAULTS, fault
from agentgen.scoring.metrics import FLOOR, THRESHOLDS, Go, fast_p, geomean, mean_pass_at_k
from agentgen.scoring.rates import Rate
from agentgen.scoring.verdicts import Searched, Verdict

Context = ReportEvaluatorContext[Any, Verdict, Any]
Cells = list[str | int | float | bool | None]
WORDS = {True: "accepted", False: "refused"}
ERROR_RATES = "error rates"
FAST_P = "fast_p"
BASELINES = {"the best baseline": None, EAGER: EAGER}
_RATE = ["count", "of", "share", "95% from", "to"]


@dataclass
class Confusion(ReportEvaluator[Any, Verdict, Any]):
    """What was expected against what was found; a case that has no verdict is in a column of its own."""

    def evaluate(self, ctx: Context) -> ConfusionMatrix:
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
class ErrorRates(ReportEvaluator[Any, Verdict, Any]):
    """False accepts and false rejects, of so many verdicts; beside them, how many cases failed."""

    def evaluate(self, ctx: Context) -> TableResult:
        """Counts."""
        rows: list[Cells] = []
        for name, wanted in (("false accepts", False), ("false rejects", True)):
            expected = [case for case in ctx.report.cases if due(case).accepted is wanted]
            rate = Rate(sum(case.output.accepted is not wanted for case in expected), len(expected))
            failed = sum(due(failure).accepted is wanted for failure in ctx.report.failures)
            rows.append([name, rate.count, rate.of, *_interval(ctx, rate), failed])
        return TableResult(title=ERROR_RATES, columns=["", "count", "of", "95% from", "to", "failed"], rows=rows)


@dataclass
class OutcomeMatrix(ReportEvaluator[Any, Verdict, Any]):
    """The outcome that was expected against the one that was found."""

    def evaluate(self, ctx: Context) -> ConfusionMatrix:
        """Counts; only outcomes that occur are shown."""
        found = [(outcome_due(due(case)), outcome(case.output)) for case in ctx.report.cases]
        failed = [(outcome_due(due(failure)), fault(failure)) for failure in ctx.report.failures]
        pairs = Counter([*found, *failed])
        known = [*(kind.value for kind in Outcome), NO_KERNEL, REFUSED, *FAULTS]
        labels = [label for label in known if any(label in pair for pair in pairs)]
        matrix = [[pairs[row, column] for column in labels] for row in labels]
        return ConfusionMatrix(title="outcome due (rows) against found (columns)", class_labels=labels, matrix=matrix)


@dataclass
class Outcomes(ReportEvaluator[Any, Verdict, Any]):
    """How the cases ended; of a problem, how its best kernel did."""

    def evaluate(self, ctx: Context) -> TableResult:
        """Counts, the most frequent first."""
        ends = Counter([*(outcome(case.output) for case in ctx.report.cases), *map(fault, ctx.report.failures)])
        rows: list[Cells] = [[end, *_rate(ctx, Rate(count, ends.total()))] for end, count in ends.most_common()]
        return TableResult(title="outcomes", columns=["outcome", *_RATE], rows=rows)


@dataclass
class FastP(ReportEvaluator[Any, Verdict, Any]):
    """fast_p against the best baseline and against eager torch: a curve for each, and a table with the counts."""

    def evaluate(self, ctx: Context) -> list[ReportAnalysis]:
        """Counts."""
        curves: list[LinePlotCurve] = []
        tables: list[ReportAnalysis] = []
        for name, baseline in BASELINES.items():
            goes = goes_of(ctx.report, baseline)
            rates = [(p, fast_p(goes, p)) for p in THRESHOLDS]
            points = [LinePlotPoint(x=p, y=rate.share) for p, rate in rates if rate.share is not None]
            curves.append(LinePlotCurve(name=f"{name}, n = {len(goes)}", points=points))
            rows: list[Cells] = [[p, *_rate(ctx, rate)] for p, rate in rates]
            tables.append(TableResult(title=f"{FAST_P} over {name}", columns=["p", *_RATE], rows=rows))
        share = "share of all that are right, honest and more than p times as fast"
        return [LinePlot(title=FAST_P, x_label="p", y_label=share, y_range=(0, 1), curves=curves), *tables]


@dataclass
class Geomean(ReportEvaluator[Any, Verdict, Any]):
    """The geometric mean of speedups over all cases, with failures counted, and over those that were timed."""

    def evaluate(self, ctx: Context) -> TableResult:
        """Counts."""
        rows: list[Cells] = []
        for name, baseline in BASELINES.items():
            goes = goes_of(ctx.report, baseline)
            whole = geomean([go.counted for go in goes])
            timed = geomean([go.speedup for go in goes if go.speedup is not None])
            rows.append([name, whole.value, whole.of, timed.value, timed.of])
        columns = ["over", f"all, unsolved as {FLOOR}", "of", "timed alone", "of those"]
        return TableResult(title="geometric mean of speedups", columns=columns, rows=rows)


@dataclass
class PassAtK(ReportEvaluator[Any, Verdict, Any]):
    """pass@k, the mean over problems: that one of k goes is solved, and that one is faster than the best baseline."""

    def evaluate(self, ctx: Context) -> TableResult:
        """Counts, for k = 1, 2, 4, ... and the number of goes."""
        groups = _groups(ctx)
        fewest = min((len(goes) for goes in groups), default=0)
        solved = [(len(goes), sum(found is not None and found.accepted for found in goes)) for goes in groups]
        faster = [(len(goes), sum(_faster(found) for found in goes)) for goes in groups]
        rows: list[Cells] = [
            [k, mean_pass_at_k(solved, k).value, mean_pass_at_k(faster, k).value, len(groups), fewest]
            for k in _ks(fewest)
        ]
        return TableResult(title="pass@k", columns=["k", "solved", "faster", "problems", "goes at each"], rows=rows)


@dataclass
class PerSolved(ReportEvaluator[Any, Verdict, Any]):
    """What a solved problem costs: all that was spent, also on the unsolved ones, over the number of solved ones.

    Where one amount is not known, as of a search that failed, the whole is not: it is given as far as known.
    """

    def evaluate(self, ctx: Context) -> TableResult:
        """Adds up."""
        runs = [case.output.run for case in ctx.report.cases if case.output.run]
        solved = sum(case.output.accepted for case in ctx.report.cases if case.output.run)
        # What is to be solved has no kernel yet; judging one that there is costs no model's answer.
        of = len(runs) + sum(not hasattr(failure.inputs, "kernel") for failure in ctx.report.failures)
        rows: list[Cells] = []
        for name, amount in _AMOUNTS.items():
            known = [spent for run in runs if (spent := amount(run)) is not None]
            total = sum(known) if known else None
            each = total / solved if total is not None and solved and len(known) == of else None
            rows.append([name, each, solved, total, len(known), of])
        columns = ["amount", "per solved problem", "solved", "in all, as far as known", "known", "of"]
        return TableResult(title="cost", columns=columns, rows=rows)


def goes_of(report: EvaluationReport[Any, Verdict, Any], baseline: str | None) -> list[Go]:
    """Returns all goes at all cases, raced against a baseline, or against the fastest."""
    found = [case.output for case in report.cases]
    raced = [(verdict, verdict.against(baseline) if verdict.accepted else None) for verdict in found]
    goes = [Go(verdict.accepted, race.ratio if race else None) for verdict, race in raced]
    return [*goes, *(Go(solved=False) for _ in report.failures)]


REPORT_EVALUATORS = (Confusion, ErrorRates, OutcomeMatrix, Outcomes, FastP, Geomean, PassAtK, PerSolved)
_AMOUNTS: dict[str, Callable[[Searched], float | None]] = {
    "USD": lambda run: run.cost_usd,
    "tokens": lambda run: run.tokens,
    "seconds": lambda run: run.seconds,
}


def _groups(ctx: Context) -> list[list[Verdict | None]]:
    """Returns the goes at each case; None: the machine failed."""
    report: EvaluationReport[Any, Verdict, Any] = ctx.report
    groups = report.case_groups()
    if groups is None:  # one go at each
        return [*([case.output] for case in report.cases), *([None] for _ in report.failures)]
    return [[*(case.output for case in group.runs), *(None for _ in group.failures)] for group in groups]


def _ks(goes: int) -> Sequence[int]:
    doubled = takewhile(lambda k: k < goes, (2**power for power in range(goes)))
    return [*doubled, goes] if goes else []


def _faster(found: Verdict | None) -> bool:
    race = found.against() if found and found.accepted else None
    return race is not None and race.faster


def _rate(ctx: Context, rate: Rate) -> Cells:
    return [rate.count, rate.of, rate.share, *_interval(ctx, rate)]


def _interval(ctx: Context, rate: Rate) -> tuple[float | None, float | None]:
    return (None, None) if ctx.report.case_groups() else rate.interval()


def _row(case: Any) -> int:
    return list(WORDS).index(due(case).accepted)
