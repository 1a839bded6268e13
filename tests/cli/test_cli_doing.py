"""What an evaluation does with what is kept of one that was ended: on which machine, and by which agentgen, it was."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from made_records import cpu
from rich.console import Console

from agentgen import wiring
from agentgen.cli import evaluating
from agentgen.cli.doing import Doing
from agentgen.cli.evaluating import Evaluating
from agentgen.cli.screen import screen
from agentgen.config import Settings
from agentgen.errors import DeviceLost, ReferenceInvalid, ReplyPending
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Caps
from agentgen.scoring import cases
from agentgen.scoring.cases import Inputs, Solve
from agentgen.scoring.journal import Begun, Found, Journal, Visitor
from agentgen.scoring.verdicts import Verdict

DATASET = "name: small\ncases: [{name: a, inputs: {problem: bad}}, {name: b, inputs: {problem: p}}]"


@dataclass(frozen=True)
class Judge:
    """Knows its machine alone."""

    machine: Machine

    def target(self) -> Judge:
        return self


class Rehearsed(Doing):
    """Solves everything on a machine that the tests choose; the reference of "bad" is invalid."""

    device = "a CPU"
    opened: ClassVar[list[str]] = []
    solved: ClassVar[list[str]] = []

    @property
    def machine(self) -> Machine:
        return cpu(self.device)

    def require(self, place: str, inputs: Inputs, repeat: int = 1) -> None:
        """Everything can begin."""

    def open_judge(self, place: str, folder: Path, arithmetic: Arithmetic | None = None) -> Any:
        self.opened.append(folder.name)
        if folder.name == "bad":
            raise ReferenceInvalid("bad: the reference fails")
        return nullcontext(Judge(self.machine))

    def solve(self, place: str, visitor: Visitor) -> tuple[Verdict, Machine | None]:
        self.solved.append(visitor.name)
        return Verdict(accepted=True), self.machine


Evaluate = Callable[[], tuple[str, str]]


@pytest.fixture
def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """Does the dataset once more, as if killed at its end: returns what was said, and the machine of the report."""
    monkeypatch.setattr(evaluating, "Doing", Rehearsed)
    for name, value in (("device", "a CPU"), ("opened", []), ("solved", [])):
        monkeypatch.setattr(Rehearsed, name, value)
    for name in ("bad", "p"):
        (tmp_path / name).mkdir()
    dataset = tmp_path / "small.yaml"
    dataset.write_text(DATASET)
    settings = Settings(results=tmp_path / "results", store="sqlite://", problems=Path("problems"))

    def once() -> tuple[str, str]:
        said = io.StringIO()
        console = screen("plain")
        console.file, console.width = said, 200
        one = Evaluating(settings, dataset, tmp_path, ("cpu",), console)
        report, _ = one(cases.load(dataset), 1)
        kept = {file: file.read_bytes() for file in (tmp_path / "results" / "runs").iterdir()}
        one.end()
        for file, lines in kept.items():
            file.write_bytes(lines)
        machine = (report.experiment_metadata or {})["machine"]
        return said.getvalue(), machine["device"] if machine else ""

    return once


def test_where_all_is_known_the_machine_is_asked_all_the_same(evaluate: Evaluate) -> None:
    evaluate()
    assert (Rehearsed.opened, Rehearsed.solved) == ([], ["a", "b"])
    said, machine = evaluate()
    assert (Rehearsed.solved, machine, "2 of 2 finished" in said) == (["a", "b"], "a CPU", True)
    Rehearsed.device = "another CPU"
    said, machine = evaluate()
    assert (Rehearsed.solved, machine) == (["a", "b"] * 2, "another CPU")
    assert "2 of them were found on another machine" in said


def test_of_several_problems_one_that_a_judge_can_be_opened_for_says_which_machine_it_is(evaluate: Evaluate) -> None:
    evaluate()
    evaluate()
    assert Rehearsed.opened == ["bad", "p"], "the first reference is invalid"


@pytest.mark.parametrize("found", [False, True])
def test_where_no_reference_is_valid_only_what_was_found_stands_in_the_way(tmp_path: Path, found: bool) -> None:
    settings = Settings(results=tmp_path, store="sqlite://", problems=tmp_path)
    journal = Journal(tmp_path / "j.jsonl", tmp_path)
    visitor = journal.visitor("a", 1, Solve(problem=Path("bad")))
    journal.begin(visitor, Begun(run="r"))
    doing = Rehearsed(settings, tmp_path, ("cpu",), journal, Console(quiet=True))
    if found:
        journal.keep(visitor, Found(verdict=Verdict(accepted=True), machine=doing.machine, seconds=1.0))
        with pytest.raises(ReferenceInvalid, match="--fresh"):
            doing.same_machine("cpu", [Path("bad")])
    else:
        assert doing.same_machine("cpu", [Path("bad")]) == 0


def test_a_device_that_is_lost_is_no_invalid_reference(evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_self: Rehearsed, _place: str, _folder: Path) -> Any:
        raise DeviceLost("the device is gone")

    evaluate()
    monkeypatch.setattr(Rehearsed, "open_judge", lost)
    with pytest.raises(DeviceLost):
        evaluate()


def test_what_another_agentgen_found_is_done_again(evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate()
    monkeypatch.setattr(evaluating, "code", lambda: "changed")
    said, _ = evaluate()
    assert (said.count("kept by another agentgen"), Rehearsed.solved) == (1, ["a", "b"] * 2)
    said, _ = evaluate()
    assert ("2 of 2 finished" in said, "another agentgen" in said, Rehearsed.solved) == (True, False, ["a", "b"] * 2)


@pytest.mark.parametrize("error", [ReplyPending("for 1 answer"), KeyboardInterrupt()])
def test_who_is_to_give_the_command_again_is_told_to_leave_fresh_out(
    evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fails(_self: Rehearsed, _place: str, _visitor: Visitor) -> Any:
        raise error

    monkeypatch.setattr(Rehearsed, "solve", fails)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt) as raised:
            evaluate()
        assert "without --fresh" in raised.value.__notes__[0]
    else:
        said, _ = evaluate()
        assert "the same command without --fresh" in said


@pytest.mark.parametrize(
    ("case", "environment", "option", "minutes"),
    [
        (None, 5.0, 30.0, 5.0),
        (None, 30.0, 5.0, 5.0),
        (8.0, 5.0, None, 8.0),
        (8.0, 5.0, 6.0, 6.0),
        (None, None, 7.0, 7.0),
    ],
)
def test_a_search_may_take_no_longer_than_the_least_that_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: float | None,
    environment: float | None,
    option: float | None,
    minutes: float,
) -> None:
    asked: list[Settings] = []

    def new_run(settings: Settings, _problem: str) -> None:
        asked.append(settings)

    monkeypatch.setattr(wiring, "new_run", new_run)
    settings = Settings(results=tmp_path, store="sqlite://", problems=tmp_path, budget_minutes=environment)
    journal = Journal(tmp_path / "j.jsonl", tmp_path)
    doing = Doing(settings, tmp_path, ("cpu",), journal, Console(quiet=True), limit_minutes=option)
    doing.require("cpu", Solve(problem=Path("p"), caps=Caps(minutes=case)))
    assert [one.budget_minutes for one in asked] == [minutes]
