"""A kernel that is entered already is told before its certificate is made, and else with what was found; one that its
certificate refuses counts as refused in its run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from entry_records import REFERENCE, certificate, entry, problem
from made_records import cpu
from stored_runs import written_run

from agentgen import wiring
from agentgen.cli.main import run
from agentgen.errors import StoreUnavailable
from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Machine
from agentgen.records.trial import Check, Depth, Outcome, Trial
from agentgen.store import entries
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

    def __init__(self, happens: Callable[[], object], says: Trial | None = None) -> None:
        self._happens = happens
        self._says = says

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None: ...

    def opened(self, *_: object) -> Judge:
        return self

    def target(self, *_: object) -> Known:
        return Known()

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
    refused = certificate(KERNEL, machine=HERE).model_copy(update={**update, "speedups": (), "roofline_fraction": None})
    with open_ledger(f"sqlite:///{home / 'results' / 'agentgen.db'}") as ledger:
        (one,) = ledger.runs()
        ledger.add_trial(one.id, passed)
    assert failures(capsys) == []

    code, _, said = add(monkeypatch, capsys, Judge(lambda: None, refused))
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


def test_a_certificate_that_cannot_be_kept_is_told_still(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = certificate(KERNEL, machine=HERE).model_copy(update={"outcome": Outcome.CRASHED, "reasons": ("why",)})
    with open_ledger(f"sqlite:///{home / 'results' / 'agentgen.db'}") as ledger:
        (one,) = ledger.runs()
        ledger.add_trial(one.id, certificate(KERNEL, machine=HERE))

    def full(*_: object) -> bool:
        raise StoreUnavailable("no space left")

    monkeypatch.setattr(Ledger, "add_trial", full)
    code, told, said = add(monkeypatch, capsys, Judge(lambda: None, refused))
    assert (code, told["outcome"]) == (1, "CRASHED")
    assert "is not kept in run" in said


def failures(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    assert run(["failures", "list", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["causes"]
