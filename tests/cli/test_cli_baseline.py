"""What is given of a baseline: combinations that make no sense, files that are none, and what is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_program import agentgen_program
from pydantic_evals.reporting import EvaluationReport, ReportCaseFailure

from agentgen.cli.baseline import Baseline, opened
from agentgen.errors import BadInput, MachineFailure
from agentgen.scoring import batch
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.verdicts import Verdict


def report(*failed: str, name: str = "small") -> Report:
    failures = [
        ReportCaseFailure[Inputs, Verdict, About](
            name=case,
            inputs=Solve(problem=Path("p")),
            metadata=None,
            expected_output=None,
            error_message="gone",
            error_stacktrace="",
        )
        for case in failed
    ]
    return EvaluationReport(name=name, cases=[], failures=failures)


def test_no_baseline_is_none() -> None:
    assert opened(None, update=False, save=None, only=(), dataset="small") is None


def test_combinations_that_make_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    batch.save(report(), path)
    with pytest.raises(BadInput, match="--update-baseline needs"):
        opened(None, update=True, save=None, only=(), dataset="small")
    with pytest.raises(BadInput, match="take all other cases out"):
        opened(path, update=True, save=None, only=("a",), dataset="small")
    with pytest.raises(BadInput, match="are one file"):
        opened(path, update=False, save=tmp_path / "." / "b.json", only=(), dataset="small")


def test_files_that_are_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    with pytest.raises(BadInput, match=r"cannot read the baseline .*No such file"):
        opened(path, update=False, save=None, only=(), dataset="small")
    path.write_text('{"name": "small"}')
    with pytest.raises(BadInput, match=r"is no report of agentgen eval: cases"):
        opened(path, update=True, save=None, only=(), dataset="small")
    batch.save(report(name="other"), path)
    with pytest.raises(BadInput, match="of the dataset 'other', not of 'small'"):
        opened(path, update=True, save=None, only=(), dataset="small")


def test_what_is_not_evaluated_is_not_compared(tmp_path: Path) -> None:
    batch.save(report("one", "two"), tmp_path / "b.json")
    found = opened(tmp_path / "b.json", update=False, save=None, only=("tw",), dataset="small")
    assert found
    assert found.report
    assert [failure.name for failure in found.report.failures] == ["two"]


def test_the_first_baseline_is_written_and_only_where_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "b.json"
    found = opened(path, update=True, save=None, only=(), dataset="small")
    assert found == Baseline(path, None, update=True)
    assert found
    found.written(report())
    assert batch.read(path).name == "small"
    Baseline(path, batch.read(path), update=False).written(report("one"))
    assert batch.read(path).failures == []


def test_a_report_with_holes_becomes_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    batch.save(report(), path)
    with pytest.raises(MachineFailure, match="stays as it is: the machine failed 1"):
        Baseline(path, batch.read(path), update=True).written(report("one"))
    assert batch.read(path).failures == []


def test_the_command_line_refuses_before_anything_is_judged(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("name: small\ncases: []\n")
    ended = agentgen_program("eval", "small.yaml", "--device", "cpu", "--update-baseline", "--json", folder=tmp_path)
    assert ended.code == 2
    assert ended.answer["error"] == "--update-baseline needs the --baseline that is to be written"
    assert ended.stderr.splitlines() == [f"agentgen: {ended.answer['error']}"]
