"""An evaluation that ends before its end, in whatever way, goes on where it was."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from killed_evaluation import Judges, dataset
from pydantic import TypeAdapter
from whole import evaluated

import agentgen
from agentgen.errors import BadInput, DeviceLost, ModelUnavailable
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.scoring import batch, cases
from agentgen.scoring.journal import Begun, Found, Journal, Visitor
from agentgen.scoring.verdicts import Searched, Verdict

MACHINE = Judges.machine("a CPU")


def without_times(report: batch.Report) -> Any:
    """Returns all that a report says, but for how long things took."""
    found = TypeAdapter(batch.Report).dump_python(report, mode="json")
    for case in found["cases"]:
        del case["task_duration"], case["total_duration"]
    return found


class Interrupts:
    """Interrupts once so many verdicts were told."""

    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self, _name: str, _verdict: Verdict) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


# ---- ended and begun again -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("repeat", [1, 3])
def test_nothing_is_judged_twice_and_the_report_is_that_of_one_go(tmp_path: Path, repeat: int) -> None:
    whole, path = dataset(tmp_path / "whole", 4), dataset(tmp_path / "ended", 4)
    expected = evaluated(whole, Judges(), repeat=repeat)
    judges = Judges()
    for after in (1, 3):
        with pytest.raises(KeyboardInterrupt):
            evaluated(path, judges, on_verdict=Interrupts(after), repeat=repeat)
    report = evaluated(path, judges, repeat=repeat)
    assert Counter(judges.judged) == {f"PASSED {number}": repeat for number in range(4)}
    assert without_times(report) == without_times(expected)


@pytest.mark.slow
def test_an_evaluation_that_is_killed_again_and_again_judges_each_kernel_once(tmp_path: Path) -> None:
    whole, path = dataset(tmp_path / "whole", 30), dataset(tmp_path / "killed", 30)
    log, kept = tmp_path / "log", tmp_path / "report.json"
    moments, kills = random.Random(8), 0
    command = [sys.executable, str(Path(__file__).with_name("killed_evaluation.py")), str(path), str(log), str(kept)]
    root = str(Path(agentgen.__file__).parents[1])
    while not kept.exists():
        before = log.read_text().count("\n") if log.exists() else 0
        with subprocess.Popen(command, env={"PYTHONPATH": root}) as program:
            while program.poll() is None and not (log.exists() and log.read_text().count("\n") > before):
                time.sleep(0.01)  # importing is no moment of the evaluation
            time.sleep(moments.uniform(0.0, 0.3))
            program.send_signal(signal.SIGKILL)
            kills += program.wait() == -signal.SIGKILL
        assert kills < 60
    assert kills > 3
    judged = Counter(log.read_text().split("\n")[:-1])
    assert len(judged) == 30
    assert sum(judged.values()) - 30 <= kills, "only what was under way is judged again"
    assert without_times(batch.read(kept)) == without_times(evaluated(whole, Judges()))


def test_a_case_keeps_the_time_that_it_took_when_it_was_judged(tmp_path: Path) -> None:
    path = dataset(tmp_path, 2)
    first = evaluated(path, Judges(seconds=0.1))
    again = evaluated(path, Judges())
    assert [case.task_duration for case in again.cases] == [case.task_duration for case in first.cases]
    assert min(case.task_duration for case in again.cases) >= 0.1
    assert "seconds" not in again.cases[0].attributes


# ---- what the file holds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["half", "nonsense", "other version"])
def test_a_line_that_nobody_can_read_costs_its_case_alone(tmp_path: Path, harm: str) -> None:
    path = dataset(tmp_path, 3)
    expected = evaluated(path, Judges())
    file = path.with_suffix(".jsonl")
    lines = file.read_bytes().split(b"\n")[:-1]
    last = {"half": lines[2][: len(lines[2]) // 2], "nonsense": b'[1, "\xff', "other version": b""}[harm]
    if harm == "other version":
        entry = json.loads(lines[2])
        entry["found"]["colour"] = "red"
        last = json.dumps(entry).encode() + b"\n"
    file.write_bytes(lines[0] + b"\n" + lines[1] + b"\n" + last)
    judges = Judges()
    assert without_times(evaluated(path, judges)) == without_times(expected)
    assert judges.judged == ["PASSED 2"]
    assert evaluated(path, judges).cases
    assert judges.judged == ["PASSED 2"], "what was written behind the torn line is read"


@pytest.mark.parametrize(
    ("file", "again"), [("cpp/1.py", ["PASSED 1 #"]), ("p/reference.py", ["PASSED 0", "PASSED 1"])]
)
def test_what_has_changed_is_judged_again(tmp_path: Path, file: str, again: list[str]) -> None:
    path = dataset(tmp_path, 2)
    evaluated(path, Judges())
    (tmp_path / file).write_text((tmp_path / file).read_text() + " #")
    judges = Judges()
    evaluated(path, judges)
    assert judges.judged == again


def test_other_line_ends_are_another_kernel(tmp_path: Path) -> None:
    path = dataset(tmp_path, 2)
    evaluated(path, Judges())
    (tmp_path / "cpp/1.py").write_bytes((tmp_path / "cpp/1.py").read_bytes() + b"\r\n")
    evaluated(path, judges := Judges())
    (tmp_path / "cpp/1.py").write_bytes((tmp_path / "cpp/1.py").read_bytes().replace(b"\r\n", b"\n"))
    evaluated(path, judges)
    assert len(judges.judged) == 2


def test_what_was_found_on_another_machine_is_forgotten(tmp_path: Path) -> None:
    path = dataset(tmp_path, 2)
    evaluated(path, Judges())
    journal = Journal(path.with_suffix(".jsonl"), tmp_path)
    goes = [journal.visitor(case.name or "", 1, case.inputs) for case in cases.load(path).cases]
    assert journal.forget(MACHINE) == 0
    assert [one.id for one in journal.machines] == [MACHINE.id]
    assert journal.forget(Judges.machine("another CPU")) == 2
    assert [journal.known(visitor) for visitor in goes] == [None, None]


def test_a_machine_that_is_another_than_the_journal_s_is_said(tmp_path: Path) -> None:
    path = dataset(tmp_path, 2)
    with pytest.raises(KeyboardInterrupt):
        evaluated(path, Judges(), on_verdict=Interrupts(1))
    report = evaluated(path, Judges(device="another CPU"))
    assert [case.name for case in report.cases] == ["k0"]
    assert "another kind of machine (another CPU)" in report.failures[0].error_message


def test_two_processes_do_not_share_a_journal(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "j.jsonl", tmp_path), Journal(tmp_path / "j.jsonl", tmp_path)
    first.claim()
    with pytest.raises(BadInput, match="another process"):
        second.claim()
    first.end()
    assert not list(tmp_path.iterdir())
    second.claim()


# ---- what fails ------------------------------------------------------------------------------------------------------


def test_a_machine_that_fails_once_is_tried_again_by_a_new_judge(tmp_path: Path) -> None:
    path, judges = dataset(tmp_path, 2), Judges(losses={"PASSED 0": 2})
    report = evaluated(path, judges)
    assert batch.as_expected(report)
    assert judges.judged == ["PASSED 0"] * 3 + ["PASSED 1"]
    assert (judges.opened, judges.open) == (3, 0)


def test_a_machine_that_always_fails_is_told_and_tried_again_the_next_time(tmp_path: Path) -> None:
    path, judges, told = dataset(tmp_path, 2), Judges(losses={"PASSED 0": 3}), list[tuple[str, type]]()

    def on_failure(name: str, error: Exception) -> None:
        told.append((name, type(error)))

    report = evaluated(path, judges, on_failure=on_failure)
    assert not batch.as_expected(report)
    assert told == [("k0", DeviceLost)]
    assert ([failure.name for failure in report.failures], len(report.cases)) == (["k0"], 1)
    again = evaluated(path, judges)
    assert batch.as_expected(again)
    assert judges.judged == ["PASSED 0"] * 3 + ["PASSED 1", "PASSED 0"]


def test_an_evaluator_that_fails_is_nothing_expected(tmp_path: Path) -> None:
    path = dataset(tmp_path, 1)
    path.write_text(path.read_text().replace("expected_output: {accepted: true}", ""))
    assert not batch.as_expected(evaluated(path, Judges()))


# ---- searches --------------------------------------------------------------------------------------------------------


class Search:
    """Solves as `agentgen eval` does, but for the search: begins a run, and may end before that does."""

    def __init__(self, path: Path, ends: list[BaseException | None]) -> None:
        self.path = path
        self.runs: list[str] = []
        self._ends = ends

    def __call__(self, _device: str, visitor: Visitor) -> tuple[Verdict, Machine]:
        journal = Journal(self.path.with_suffix(".jsonl"), self.path.parent)
        begun = journal.begun(visitor)
        run = begun.run if begun else f"run {len(self.runs)}"
        if not begun:
            journal.begin(visitor, Begun(run=run))
        self.runs.append(run)
        if error := self._ends.pop(0):
            raise error
        searched = Searched(id=run, models=("m",), candidates=1, accepted=1, seconds=9.0, tokens=None, cost_usd=None)
        return Verdict(accepted=True, outcome=Outcome.PASSED, run=searched), MACHINE


def to_solve(folder: Path) -> Path:
    """Writes a dataset of one problem."""
    (folder / "p").mkdir()
    path = folder / "small.yaml"
    path.write_text("name: small\ncases: [{name: s, inputs: {problem: p, rounds: 1}}]")
    return path


def runs(report: batch.Report) -> list[str]:
    """Returns the run of each case."""
    return [case.output.run.id for case in report.cases if case.output.run]


@contextmanager
def no_judge(_device: str, _folder: Path, _arithmetic: Arithmetic | None) -> Generator[Any]:
    """Is never opened."""
    raise AssertionError
    yield


def test_a_search_that_was_under_way_goes_on_and_one_that_is_done_is_not_begun_again(tmp_path: Path) -> None:
    path = to_solve(tmp_path)
    search = Search(path, [ModelUnavailable("the server is gone"), DeviceLost("gone"), None])
    failed = evaluated(path, no_judge, solve=search)
    assert (len(failed.failures), search.runs) == (1, ["run 0"]), "a model is not asked again at once"
    report = evaluated(path, no_judge, solve=search)
    assert search.runs == ["run 0"] * 3
    (case,) = report.cases
    assert (runs(report), case.task_duration) == (["run 0"], 9.0)
    evaluated(path, no_judge, solve=search)
    assert search.runs == ["run 0"] * 3


def test_each_go_at_a_problem_is_a_run_of_its_own(tmp_path: Path) -> None:
    path = to_solve(tmp_path)
    search = Search(path, [None, None])
    report = evaluated(path, no_judge, solve=search, repeat=2)
    assert runs(report) == ["run 0", "run 1"]


def test_what_is_kept_is_what_was_found(tmp_path: Path) -> None:
    found = Found(verdict=Verdict(accepted=False, outcome=Outcome.CRASHED, by=("build",)), machine=MACHINE, seconds=1.5)
    journal = Journal(tmp_path / "j.jsonl", tmp_path)
    visitor = Visitor("a", cases.Solve(problem=Path("p")), "key")
    journal.begin(visitor, Begun(run="r"))
    journal.begin(visitor, Begun(run="r", seconds=2.5))
    journal.keep(visitor, found)
    read = Journal(tmp_path / "j.jsonl", tmp_path)
    assert (read.known(visitor), read.begun(visitor)) == (found, Begun(run="r", seconds=2.5))


def test_a_search_that_was_begun_again_on_this_machine_is_not_forgotten_with_the_one_on_another(tmp_path: Path) -> None:
    visitor, path = Visitor("a", cases.Solve(problem=Path("p")), "key"), tmp_path / "j.jsonl"
    first = Journal(path, tmp_path)
    first.begin(visitor, Begun(run="old"))
    first.keep(visitor, Found(verdict=Verdict(accepted=True), machine=Judges.machine("another CPU"), seconds=1.0))
    second = Journal(path, tmp_path)
    assert second.forget(MACHINE) == 1
    second.begin(visitor, Begun(run="new"))
    third = Journal(path, tmp_path)
    assert third.forget(MACHINE) == 0
    assert (third.known(visitor), third.begun(visitor)) == (None, Begun(run="new"))
