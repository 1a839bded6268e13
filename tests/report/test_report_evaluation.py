"""How an evaluation is shown to people, and what of it programs get."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_evals import Case, Dataset
from rich.console import Console

from agentgen.errors import DeviceLost
from agentgen.records.trial import Outcome, Speedup
from agentgen.report.evaluation import evaluation, summary
from agentgen.scoring import batch
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.evaluators import Correct, Decision, Faster
from agentgen.scoring.summaries import ErrorRates, FastP, Geomean, Outcomes, PerSolved
from agentgen.scoring.verdicts import Searched, Verdict

ROOT = Path(__file__).parents[2]


def run(usd: float | None) -> Searched:
    return Searched(id="r", models=("m",), candidates=3, accepted=1, seconds=61.4, tokens=None, cost_usd=usd)


def race(baseline: str, ratio: float) -> Speedup:
    return Speedup(baseline=baseline, baseline_us=9.0, ratio=ratio, low=ratio - 0.1, high=ratio + 0.1, faster=True)


FAST = Verdict(
    accepted=True,
    outcome=Outcome.PASSED,
    races=(race("compile_default", 1.6), race("eager", 3.0)),
    roofline_fraction=0.5,
    run=run(0.25),
)
CRASHED = Verdict(accepted=False, outcome=Outcome.CRASHED, reasons=("[bold]segmentation fault[/bold]",), run=run(None))


def report_of(*ends: Verdict | None, evaluators: Sequence[Any] = (), over: Sequence[Any] = ()) -> batch.Report:
    """Returns the report of cases that end so; None: the machine fails."""

    async def end(inputs: Inputs) -> Verdict:
        found = ends[int(str(inputs.problem))]
        if found is None:
            raise DeviceLost("the device is gone")
        return found

    made: list[Case[Inputs, Verdict, About]] = [
        Case(name=f"case {n}", inputs=Solve(problem=Path(str(n)))) for n in range(len(ends))
    ]
    dataset = Dataset[Inputs, Verdict, About](name="made", cases=made, evaluators=evaluators, report_evaluators=over)
    return dataset.evaluate_sync(end, progress=False)


def lines(report: batch.Report) -> list[str]:
    console = Console(width=140, highlight=False)
    with console.capture() as capture:
        console.print(evaluation(report))
    return capture.get().splitlines()


def line(report: batch.Report, start: str) -> str:
    """Returns the only line that begins so, with one space between words."""
    (found,) = (one for one in lines(report) if one.strip().startswith(start))
    return " ".join(found.split())


def test_each_problem_is_shown_and_an_unknown_price_is_no_0() -> None:
    report = report_of(FAST, CRASHED)
    solved = "case 0 PASSED 1.60× [1.50, 1.70] 3.00× [2.90, 3.10] 50% 1/3 61 0.2500"
    assert line(report, "case 0") == solved
    assert line(report, "case 1") == "case 1 CRASHED – – – 1/3 61 unknown"


def test_fast_p_is_one_small_table_with_n_in_every_cell() -> None:
    report = report_of(FAST, CRASHED, None, FAST, over=[FastP()])
    assert line(report, "p ") == "p fast_p over the best baseline fast_p over eager"
    assert line(report, "1.5 ") == "1.5 2 of 4 50% [7%, 93%] 2 of 4 50% [7%, 93%]"
    assert line(report, "2 ") == "2 0 of 4 0% [0%, 60%] 2 of 4 50% [7%, 93%]"


def test_where_everything_failed_all_is_still_shown() -> None:
    report = report_of(CRASHED, None, over=[FastP(), Geomean(), Outcomes(), PerSolved()])
    assert line(report, "1.5 ") == "1.5 0 of 2 0% [0%, 84%] 0 of 2 0% [0%, 84%]"
    assert line(report, "the best baseline ") == "the best baseline 0.1000 2 – 0"
    assert line(report, "the machine failed") == "the machine failed 1 2 0.5000 0.0126 0.9874"
    assert line(report, "USD") == "USD – 0 – 0 2"


def test_what_is_not_as_expected_comes_first_and_is_no_markup() -> None:
    shown = lines(report_of(CRASHED, evaluators=[Correct(), Faster()]))
    first = next(position for position, one in enumerate(shown) if one.strip().startswith("case 0"))
    assert shown[first].split()[2:] == ["Correct", "CRASHED:", "[bold]segmentation", "fault[/bold]"]
    assert shown[-1] == "1 case: 1 not as expected"


def test_an_evaluator_that_could_not_say_is_named() -> None:
    report = report_of(FAST, evaluators=[Decision()], over=[ErrorRates()])
    shown = "\n".join(lines(report))
    assert "Decision failed" in shown
    assert "ErrorRates failed" in shown
    assert shown.endswith("1 case: 1 not as expected, and not all could be counted")


def test_programs_get_what_evaluators_could_not_say() -> None:
    found = summary(report_of(FAST, evaluators=[Decision()], over=[ErrorRates()]))
    assert (found["as_expected"], found["cases"]["case 0"]["as_expected"]) == (False, False)
    (raised,), (over,) = found["evaluator_failures"], found["report_evaluator_failures"]
    assert (raised["case"], raised["evaluator"], over["evaluator"]) == ("case 0", "Decision", "ErrorRates")
    assert "has no expected_output" in raised["error"]


def test_programs_get_scores_and_tables_unrounded() -> None:
    found = summary(report_of(FAST, CRASHED, FAST, evaluators=[Faster()], over=[FastP(), Outcomes()]))
    assert found["cases"]["case 0"]["scores"] == {"Faster": 1.0}
    assert [row["outcome"] for row in found["tables"]["outcomes"]] == ["PASSED", "CRASHED"]
    assert found["tables"]["fast_p over eager"][0]["share"] == 2 / 3
    assert found["rates"] == {}


@pytest.mark.parametrize("path", sorted((ROOT / "results" / "evals").glob("judge-*.json")), ids=lambda path: path.stem)
def test_published_reports_are_still_read_and_their_rates_are_where_they_were(path: Path) -> None:
    report = batch.read(path)
    rates = summary(report)["rates"]
    assert list(rates) == ["false accepts", "false rejects"]
    assert sum(rate["of"] for rate in rates.values()) == len(report.cases)
    assert list(rates["false accepts"])[:4] == ["count", "of", "95% from", "to"]
