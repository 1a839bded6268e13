"""What is counted over all cases, against values worked by hand; nothing ever leaves a denominator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from made_reports import LOST, column, report_of, table
from pydantic_evals.evaluators import ReportEvaluatorContext
from pydantic_evals.reporting.analyses import ConfusionMatrix, LinePlot
from verdict_records import passed, refused, spent
from whole import evaluated

from agentgen.errors import BadInput
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.report.evaluation import summary
from agentgen.scoring import batch, cases
from agentgen.scoring.cases import Subject
from agentgen.scoring.journal import Visitor
from agentgen.scoring.summaries import ErrorRates, FastP, Geomean, OutcomeMatrix, Outcomes, PassAtK, PerSolved
from agentgen.scoring.verdicts import Searched, Verdict

FIVE: Mapping[str, Sequence[Verdict | None]] = {
    "fast": [passed(2.0, 3.0)],
    "slow": [passed(0.5, 1.2)],
    "untimed": [passed()],
    "wrong": [refused(Outcome.WRONG_VALUES)],
    "lost": [LOST],
}
ALL_FAILED: Mapping[str, Sequence[Verdict | None]] = {
    "wrong": [refused(Outcome.WRONG_VALUES)],
    "crashed": [refused(Outcome.CRASHED)],
    "lost": [LOST],
}


# ---- fast_p ----------------------------------------------------------------------------------------------------------


def test_fast_p_over_all_also_over_what_the_machine_failed() -> None:
    report = report_of(FIVE, FastP())
    assert column(report, "fast_p over the best baseline", "p") == [0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0]
    assert column(report, "fast_p over the best baseline", "count") == [3, 1, 1, 1, 1, 0, 0]
    assert column(report, "fast_p over eager", "count") == [3, 2, 2, 2, 1, 1, 0]
    assert column(report, "fast_p over eager", "of") == [5] * 7
    assert column(report, "fast_p over eager", "share")[:2] == [0.6, 0.4]


def test_fast_p_is_a_curve_with_its_n() -> None:
    (plot,) = (found for found in report_of(FIVE, FastP()).analyses if isinstance(found, LinePlot))
    assert [curve.name for curve in plot.curves] == ["the best baseline, n = 5", "eager, n = 5"]
    assert [(point.x, point.y) for point in plot.curves[0].points][:3] == [(0.0, 0.6), (0.5, 0.2), (0.8, 0.2)]


def test_fast_p_where_everything_failed_is_0_of_n() -> None:
    first, *_ = table(report_of(ALL_FAILED, FastP()), "fast_p over the best baseline")
    assert (first["count"], first["of"], first["share"], first["95% from"]) == (0, 3, 0.0, 0.0)
    assert first["to"] == pytest.approx(1 - 0.025 ** (1 / 3))


def test_of_no_case_there_is_no_share() -> None:
    report = report_of({}, FastP(), Geomean(), PassAtK(), Outcomes(), PerSolved())
    assert set(column(report, "fast_p over eager", "share")) == {None}
    assert column(report, "geometric mean of speedups", "timed alone") == [None, None]
    assert table(report, "pass@k") == table(report, "outcomes") == []
    assert column(report, "cost", "per solved problem") == [None, None, None]


# ---- geomean ---------------------------------------------------------------------------------------------------------


def test_the_geometric_mean_with_failures_counted() -> None:
    """(2 x 0.5 x 0.1^3)^(1/5) = 10^-0.6, and (3 x 1.2 x 0.1^3)^(1/5)."""
    best, eager = table(report_of(FIVE, Geomean()), "geometric mean of speedups")
    assert (best["all, unsolved as 0.1"], best["of"]) == (pytest.approx(10**-0.6), 5)
    assert (best["timed alone"], best["of those"]) == (pytest.approx(1.0), 2)
    assert (eager["all, unsolved as 0.1"], eager["of"]) == (pytest.approx(0.0036**0.2), 5)
    assert (eager["timed alone"], eager["of those"]) == (pytest.approx(sqrt(3.6)), 2)


def test_the_geometric_mean_where_everything_failed() -> None:
    best, _ = table(report_of(ALL_FAILED, Geomean()), "geometric mean of speedups")
    assert (best["all, unsolved as 0.1"], best["of"]) == (pytest.approx(0.1), 3)
    assert (best["timed alone"], best["of those"]) == (None, 0)


# ---- pass@k ----------------------------------------------------------------------------------------------------------

REPEATED: Mapping[str, Sequence[Verdict | None]] = {
    "half": [passed(2.0, 2.0), refused(Outcome.CRASHED), passed(0.9, 2.0), LOST],
    "never": [refused(Outcome.CRASHED), LOST, refused(Outcome.WRONG_VALUES), LOST],
    "lost": [LOST, LOST, LOST, LOST],
}


def test_pass_at_k_over_repeats_by_hand() -> None:
    """Of "half" 2 of 4 are solved: 1/2, 1 - C(2,2)/C(4,2) = 5/6, 1; 1 of 4 is faster: 1/4, 1/2, 1. The others: 0."""
    rows = table(report_of(REPEATED, PassAtK()), "pass@k")
    assert [row["k"] for row in rows] == [1, 2, 4]
    assert [row["solved"] for row in rows] == pytest.approx([1 / 6, 5 / 18, 1 / 3])
    assert [row["faster"] for row in rows] == pytest.approx([1 / 12, 1 / 6, 1 / 3])
    assert {(row["problems"], row["goes at each"]) for row in rows} == {(3, 4)}


def test_pass_at_1_of_one_go_is_the_share_that_is_solved() -> None:
    (row,) = table(report_of(FIVE, PassAtK()), "pass@k")
    assert row == {"k": 1, "solved": 0.6, "faster": 0.2, "problems": 5, "goes at each": 1}


def test_pass_at_k_where_everything_failed() -> None:
    assert column(report_of(ALL_FAILED, PassAtK()), "pass@k", "solved") == [0.0]


def test_several_goes_have_no_interval_of_independent_draws() -> None:
    report = report_of(REPEATED, FastP(), Outcomes())
    assert column(report, "fast_p over eager", "count")[0] == 2
    assert column(report, "fast_p over eager", "of")[0] == 12
    assert set(column(report, "fast_p over eager", "to")) == {None}


# ---- outcomes --------------------------------------------------------------------------------------------------------


def test_outcomes_are_counted_with_the_machine_s_own_class() -> None:
    unwritten = Verdict(accepted=False, reasons=("no candidate was evaluated",))
    rows = table(report_of({**FIVE, "unwritten": [unwritten]}, Outcomes()), "outcomes")
    assert {row["outcome"]: (row["count"], row["of"]) for row in rows} == {
        "PASSED": (3, 6),
        "WRONG_VALUES": (1, 6),
        "no kernel": (1, 6),
        "the machine failed": (1, 6),
    }


def test_outcomes_due_are_held_against_those_found() -> None:
    wanted = {
        "fast": Verdict(accepted=True),
        "slow": Verdict(accepted=False),
        "untimed": Verdict(accepted=True),
        "wrong": Verdict(accepted=False, outcome=Outcome.CRASHED),
        "lost": Verdict(accepted=True),
    }
    (matrix,) = report_of(FIVE, OutcomeMatrix(), wanted=wanted).analyses
    assert isinstance(matrix, ConfusionMatrix)
    assert matrix.class_labels == ["PASSED", "CRASHED", "WRONG_VALUES", "refused", "the machine failed"]
    assert matrix.matrix == [[2, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0] * 5, [1, 0, 0, 0, 0], [0] * 5]


# ---- the judge's errors ----------------------------------------------------------------------------------------------


def error_rates(goes: Mapping[str, Sequence[Verdict | None]]) -> dict[str, list[Any]]:
    """Returns the row of each error, where "wrong" is to be refused and all others accepted."""
    wanted = {name: Verdict(accepted=name != "wrong") for name in goes}
    found = summary(report_of(goes, ErrorRates(), wanted=wanted))["rates"]
    return {name: list(row.values()) for name, row in found.items()}


def test_error_rates_show_what_the_machine_failed() -> None:
    found = error_rates({"wrong": [LOST], "fast": [passed()], "lost": [LOST], "gone": [LOST]})
    assert found["false accepts"] == [0, 0, 0.0, 1.0, 1]
    assert found["false rejects"] == [0, 1, 0.0, pytest.approx(0.975), 2]


def test_error_rates_of_several_goes_have_no_interval_of_independent_draws() -> None:
    found = error_rates({"wrong": [passed(), refused(Outcome.CRASHED)], "fast": [passed(), LOST]})
    assert found == {"false accepts": [1, 2, None, None, 0], "false rejects": [0, 1, None, None, 1]}


# ---- cost ------------------------------------------------------------------------------------------------------------


def test_what_a_solved_problem_costs_holds_the_unsolved_ones_too() -> None:
    ends = {"a": [passed(run=spent(0.5, 20.0))], "b": [refused(Outcome.CRASHED, run=spent(1.0, 40.0))]}
    usd, tokens, seconds = table(report_of(ends, PerSolved()), "cost")
    assert usd["per solved problem"] == 1.5
    assert (usd["solved"], usd["known"], usd["of"]) == (1, 2, 2)
    assert (tokens["per solved problem"], seconds["per solved problem"]) == (2000, 60.0)


@pytest.mark.parametrize("other", [passed(run=spent(None)), LOST])
def test_an_unknown_price_makes_the_whole_unknown(other: Verdict | None) -> None:
    usd, *_ = table(report_of({"a": [passed(run=spent(0.5))], "b": [other]}, PerSolved()), "cost")
    assert usd["per solved problem"] is None
    assert (usd["in all, as far as known"], usd["known"], usd["of"]) == (0.5, 1, 2)


def test_a_kernel_that_could_not_be_judged_has_no_price() -> None:
    report = report_of({"a": [passed(run=spent(0.5))], "b": [LOST]})
    (lost,) = report.failures
    lost.inputs = Subject(problem=Path("p"), kernel=Path("cpp/k.py"))
    rows = PerSolved().evaluate(ReportEvaluatorContext(name="made", report=report, experiment_metadata=None)).rows
    assert [row[5] for row in rows] == [1, 1, 1]
    assert rows[0][1] == 0.5


def test_nothing_solved_has_no_price_per_solved_problem() -> None:
    usd, *_ = table(report_of({"a": [refused(Outcome.CRASHED, run=spent(0.5))]}, PerSolved()), "cost")
    assert (usd["per solved problem"], usd["solved"], usd["in all, as far as known"]) == (None, 0, 0.5)


def test_no_price_known_is_no_sum_of_0() -> None:
    usd, *_ = table(report_of({"a": [passed(run=spent(None))]}, PerSolved()), "cost")
    assert (usd["per solved problem"], usd["in all, as far as known"], usd["known"]) == (None, None, 0)


# ---- from a file to a report -----------------------------------------------------------------------------------------

SOLVE = """
name: solve
evaluators: [Builds, Correct, Honest, Faster, Speedup, RooflineFraction, Accuracy, Cost, OutcomeIs]
report_evaluators: [FastP, Geomean, PassAtK, Outcomes, PerSolved]
cases:
- {name: fast, inputs: {problem: fast}}
- {name: slow, inputs: {problem: slow}}
"""


class Solved:
    """Finds for each problem what it was told to."""

    def __init__(self, **ends: Verdict) -> None:
        self._ends = ends

    def __call__(self, _device: str, visitor: Visitor) -> tuple[Verdict, None]:
        return self._ends[visitor.name.split(" [")[0]], None


def dataset(folder: Path, text: str) -> Path:
    for name in ("fast", "slow"):
        (folder / name).mkdir()
    path = folder / "solve.yaml"
    path.write_text(text)
    return path


def no_judge(_device: str, _folder: Path, _arithmetic: Arithmetic | None) -> Any:
    raise AssertionError("no kernel is judged")


def solved(path: Path, run: Searched, repeat: int = 1) -> batch.Report:
    ends = Solved(fast=passed(2.0, 3.0, run), slow=passed(0.5, 1.2, run))
    return evaluated(path, no_judge, solve=ends, repeat=repeat)


def test_a_solved_dataset_is_counted_kept_and_as_expected_though_one_is_slower(tmp_path: Path) -> None:
    report = solved(dataset(tmp_path, SOLVE), spent(None))
    assert batch.as_expected(report)
    assert [case.scores["Faster"].value for case in report.cases] == [1.0, 0.0]
    assert column(report, "fast_p over the best baseline", "count") == [2, 1, 1, 1, 1, 0, 0]
    batch.save(report, tmp_path / "report.json")
    assert summary(batch.read(tmp_path / "report.json")) == summary(report)


def test_an_unsolved_problem_is_not_as_expected_where_correct_is_asked_for(tmp_path: Path) -> None:
    path = dataset(tmp_path, SOLVE)
    ends = Solved(fast=passed(2.0, 3.0, spent(0.5)), slow=refused(Outcome.CRASHED, run=spent(0.5)))
    assert not batch.as_expected(evaluated(path, no_judge, solve=ends))


def test_goes_are_counted_from_a_file_too(tmp_path: Path) -> None:
    report = solved(dataset(tmp_path, SOLVE), spent(0.5), repeat=2)
    assert [(row["k"], row["solved"], row["faster"]) for row in table(report, "pass@k")] == [
        (1, 1.0, 0.5),
        (2, 1.0, 0.5),
    ]


@pytest.mark.parametrize("listed", ["evaluators: [Decision]", "report_evaluators: [ErrorRates]"])
def test_a_verdict_that_is_due_and_missing_is_not_as_expected(tmp_path: Path, listed: str) -> None:
    """An evaluator that raises would else pass for one that found nothing wrong."""
    head = SOLVE.split("cases:")[1]
    report = solved(dataset(tmp_path, f"name: solve\n{listed}\ncases:{head}"), spent(0.5))
    assert not batch.as_expected(report)


def test_an_evaluator_that_nobody_knows_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Fastest"):
        cases.load(dataset(tmp_path, SOLVE.replace("Faster,", "Fastest,")))
