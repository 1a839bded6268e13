"""A kernel that is entered already is told before its certificate is made, and else with what was found; one that its
certificate refuses counts as refused in its run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from entry_records import REFERENCE, certificate, entry, problem, refused
from made_records import cpu, target
from stored_runs import written_run

from agentgen import wiring
from agentgen.cli.main import run
from agentgen.errors import StoreUnavailable
from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Machine
from agentgen.records.run import Run
from agentgen.records.trial import Check, Depth, Outcome, Trial
from agentgen.store import entries, transfer
from agentgen.store.ledger import Ledger, open_ledger

KERNEL = Candidate(source="# first\nclass ModelNew: ...\n", language=Language.CPP)
HERE = cpu("a CPU")


@dataclass
class Known:
    """What a judge found out before any candidate came."""

    machine: Machine = HERE
    workload: str = "main"


class Judge:
    """Certifies whatever it is given, while something happens, or says what it is told to."""

    def __init__(self, happens: Callable[[], object], says: Trial | None = None, knows: Known | None = None) -> None:
        self._happens = happens
        self._says = says
        self._knows = knows or Known()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None: ...

    def opened(self, *_: object) -> Judge:
        return self

    def target(self, *_: object) -> Known:
        return self._knows

    def evaluate(self, candidate: Candidate, *_: object, **__: object) -> Trial:
        self._happens()
        return self._says or certificate(candidate, machine=HERE)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run whose one kernel a model wrote."""
    monkeypatch.delenv("AGENTGEN_STORE", raising=False)
    monkeypatch.setenv("AGENTGEN_PROBLEMS", str(tmp_path / "problems"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "problems" / "relu"
    folder.mkdir(parents=True)
    (folder / "problem.yaml").write_text("title: a\narithmetic: fp32\nworkloads: [{name: main}]\n")
    (folder / "reference.py").write_text(REFERENCE)
    written_run(tmp_path, problem(), KERNEL)
    return tmp_path


def add(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], judge: Judge) -> tuple[int, Any, str]:
    monkeypatch.setattr(wiring, "judge", judge.opened)
    code = run(["leaderboard", "add", "latest", KERNEL.id, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out), said.err


def test_what_is_there_is_not_judged(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judged() -> None:
        raise AssertionError("it was judged")

    there = entries.add(entry(KERNEL.source, machine=HERE), entries.root(home / "results"))
    code, told, _ = add(monkeypatch, capsys, Judge(judged))
    assert (code, told["error"]) == (2, f"{there} is that kernel: agentgen reverify judges it again")


def test_what_came_there_meanwhile_is_told_with_the_certificate(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other, root = entry(KERNEL.source, machine=HERE), entries.root(home / "results")
    code, told, said = add(monkeypatch, capsys, Judge(lambda: entries.add(other, root)))
    assert (code, told["exit_code"], told["entry"]) == (2, 2, None)
    assert "is that kernel" in told["error"]
    assert told["outcome"] == "PASSED"
    assert "not entered: " in said


def test_a_kernel_that_its_certificate_refuses_can_be_promoted(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passed = certificate(KERNEL, machine=HERE).model_copy(update={"depth": Depth.JUDGE})
    walls = Check(name="guard pages", passed=False, evidence="4 bytes were written outside")
    update = {"outcome": Outcome.CRASHED, "reasons": ("killed by SIGSEGV",), "checks": (walls,), "timing": None}
    crashed = certificate(KERNEL, machine=HERE).model_copy(update={**update, "speedups": (), "roofline_fraction": None})
    one = judged_here(home, passed)
    assert failures(capsys) == []

    code, _, said = add(monkeypatch, capsys, Judge(lambda: None, crashed))
    assert (code, f"kept in run {one.id}: PASSED -> CRASHED" in said) == (1, True)
    assert run(["reverify", one.id]) == 2  # it has no ranked kernel any more
    assert "has no ranked kernel" in capsys.readouterr().err
    (found,) = failures(capsys)
    assert found["cause"] == "relu, cpp: CRASHED, guard pages"
    assert run(["failures", "promote", one.id, "--all", "--to", "past.yaml"]) == 0
    assert "depth: certify" in Path("past.yaml").read_text()

    capsys.readouterr()
    assert add(monkeypatch, capsys, Judge(lambda: None))[0] == 0
    assert failures(capsys) == []
    # A certificate races more baselines than a search, whose kernels are ranked by their own.
    assert [one.baseline for one in trial(home).speedups] == ["eager"]


@pytest.mark.parametrize(
    ("known", "of"),
    [
        (Known(machine=cpu("another CPU")), cpu("another CPU")),
        (Known(workload="tiny"), HERE),
    ],
    ids=["on another machine", "at a smaller workload"],
)
def test_a_certificate_made_otherwise_than_the_run_judges_is_not_kept_there(
    home: Path, known: Known, of: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged_here(home, certificate(KERNEL, machine=HERE))
    code, told, said = add(monkeypatch, capsys, Judge(lambda: None, refused(KERNEL, of), known))
    assert (code, told["outcome"]) == (1, "WRONG_VALUES")
    assert "kept in" not in said
    assert trial(home).accepted


def test_a_certificate_that_cannot_be_kept_is_told_still(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged_here(home, certificate(KERNEL, machine=HERE))

    def full(*_: object) -> bool:
        raise StoreUnavailable("no space left")

    monkeypatch.setattr(Ledger, "add_trial", full)
    code, told, said = add(monkeypatch, capsys, Judge(lambda: None, refused(KERNEL, HERE)))
    assert (code, told["outcome"]) == (1, "WRONG_VALUES")
    assert "is not kept in run" in said


def test_a_folder_that_does_not_take_it_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged_here(home, certificate(KERNEL, machine=HERE))

    def full(*_: object) -> None:
        raise StoreUnavailable("no space left")

    monkeypatch.setattr(transfer, "pack", full)
    code, _, said = add(monkeypatch, capsys, Judge(lambda: None, refused(KERNEL, HERE)))
    assert code == 1
    assert "is not kept in the folder of run" in said
    assert not trial(home).accepted


def store(home: Path) -> Ledger:
    return open_ledger(f"sqlite:///{home / 'results' / 'agentgen.db'}")


def judged_here(home: Path, found: Trial) -> Run:
    """Stores what a judge of this machine found in the search."""
    with store(home) as ledger:
        (one,) = ledger.runs()
        ledger.set_target(one.id, target(problem(), HERE))
        ledger.add_trial(one.id, found)
    return one


def trial(home: Path) -> Trial:
    with store(home) as ledger:
        (one,) = ledger.runs()
        found = ledger.trial(one.id, KERNEL.id)
    assert found
    return found


def failures(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    assert run(["failures", "list", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["causes"]
