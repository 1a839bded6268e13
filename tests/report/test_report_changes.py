"""What people and programs are told of a comparison."""

from __future__ import annotations

import io
from typing import Any

import pytest
from pydantic_evals.reporting import EvaluationReport
from rich.console import Console

from agentgen.report.changes import Compared
from agentgen.scoring.gate import Change, Kind

LOST = Change(kind=Kind.LOST, case="a", what="Decision", old="PASSED", new="WRONG_VALUES: " + "far too large " * 20)
NEW = Change(kind=Kind.NEW, case="b", new="PASSED")


def shown(compared: Compared) -> list[str]:
    """Returns the lines on a narrow screen."""
    console = Console(file=io.StringIO(), width=40)
    console.print(compared.shown(), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def old(**about: Any) -> EvaluationReport[Any, Any, Any]:
    return EvaluationReport(name="small", cases=[], experiment_metadata=about or None)


def test_each_change_is_one_line_and_the_last_word_counts_regressions() -> None:
    commit = {"id": "0123456789abcdef", "changed": True}
    lines = shown(Compared(old(date="2026-11-22", commit=commit), (LOST, NEW), {}))
    assert lines == [
        LOST.line,
        "new: b: PASSED",
        "against the baseline (2026-11-22, commit 01234567, changed): 1 regression",
    ]


def test_it_says_how_small_a_slowdown_would_have_been_told() -> None:
    assert shown(Compared(old(), (), {"a": 0.021, "b": 0.203})) == [
        "times of 2 cases compared; told from chance nine times in ten: slowdowns from 2.1% to 20.3% (b) on",
        "against the baseline: no regression",
    ]
    assert "slowdowns from 2.1% on" in shown(Compared(old(), (), {"a": 0.021}))[0]


@pytest.mark.parametrize(("changes", "regression"), [((LOST, NEW), True), ((NEW,), False), ((), False)])
def test_programs_are_told_the_same(changes: tuple[Change, ...], regression: bool) -> None:
    said = Compared(old(), changes, {"a": 0.02}).summary()
    assert said["regression"] is regression
    assert [change["regression"] for change in said["changes"]] == [change.regression for change in changes]
    assert said["least_slowdown_told"] == {"a": 0.02}
