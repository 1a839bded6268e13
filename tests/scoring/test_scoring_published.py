"""What docs/verification.md says of the judge's errors is what the reports under results/evals say."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_evals.reporting.analyses import TableResult

from agentgen.scoring import batch, cases

ROOT = Path(__file__).parents[2]
REPORTS = sorted((ROOT / "results" / "evals").glob("judge-*.json"))
PAGE = (ROOT / "docs" / "verification.md").read_text()


def row(report: batch.Report) -> str:
    """Returns the table's line for a report."""
    about = report.experiment_metadata or {}
    machine = about["machine"]
    (rates,) = [analysis for analysis in report.analyses if isinstance(analysis, TableResult)]
    cells = [f"{machine['device']}, torch {machine['torch']}, {about['date']}"]
    for _, count, of, low, high, *_ in rates.rows:
        cells += [str(of), str(count), f"{100 * float(low or 0):.1f}% to {100 * float(high or 0):.1f}%"]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_the_table_is_true(path: Path) -> None:
    report = batch.read(path)
    assert not report.failures
    assert row(report) in PAGE


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_the_report_is_of_the_whole_dataset(path: Path) -> None:
    report = batch.read(path)
    device = (report.experiment_metadata or {})["machine"]["device_type"]
    now = cases.on_device(cases.load(ROOT / "evals" / "judge.yaml"), device)
    assert {case.name for case in report.cases} >= {case.name for case in now.cases}


def test_there_is_one_of_a_cpu() -> None:
    assert "judge-cpu" in [path.stem for path in REPORTS]
