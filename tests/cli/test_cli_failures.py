"""`agentgen failures` as a shell runs it, on a store with one run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_program import Ended
from made_records import REFERENCE, problem
from past_runs import RUN as OTHER
from past_runs import kernel, ledger_of, trial

from agentgen.cli.main import run
from agentgen.records.run import RunStatus
from agentgen.records.trial import Outcome
from agentgen.store.ledger import open_ledger

RUN = OTHER.model_copy(update={"problem": problem("square")})  # without sizes, as a problem from outside
WRONG, CRASHED = kernel("wrong"), kernel("crashed")
DATASET = "past/failures.yaml"
CLIP = Path(__file__).parents[1] / "problems" / "clip"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    wrong = trial(WRONG, Outcome.WRONG_VALUES, "because of 12", by=["values: main"])
    with ledger_of(tmp_path, (WRONG, wrong), (CRASHED, trial(CRASHED, Outcome.CRASHED, "because of 12")), run=RUN):
        pass
    (tmp_path / "problems").mkdir()
    return tmp_path


Program = Callable[..., Ended]


@pytest.fixture
def failures(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Program:
    """The command in this process, where starting it takes no second."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AGENTGEN_STORE", f"sqlite:///{folder / 'agentgen.db'}")
    monkeypatch.setenv("AGENTGEN_PROBLEMS", str(folder / "problems"))

    def ended(*arguments: str) -> Ended:
        code = run(["failures", *arguments, "--json"])
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return ended


def test_all_are_promoted_once(folder: Path, failures: Program) -> None:
    listed = failures("list", "--dataset", DATASET).answer
    assert [(cause["cause"], cause["promoted"]) for cause in listed["causes"]] == [
        ("square, cpp: WRONG_VALUES, values", []),
        ("square, cpp: CRASHED, because of N", []),
        ("square, cpp on cpu: unsolved", []),
    ]
    names = [f"square/cpp/{WRONG.id[:8]}", f"square/cpp/{CRASHED.id[:8]}", "solve/square/cpu/cpp"]
    promoted = failures("promote", "latest", "--all", "--to", DATASET)
    assert promoted.answer["promoted"] == names
    assert (folder / f"past/failures/cpp/square-{WRONG.id[:8]}.py").read_text() == "wrong"
    assert (folder / "past/failures/problems/square/reference.py").read_text() == REFERENCE
    again = failures("promote", "latest", "--all", "--to", DATASET)
    assert (again.code, again.answer["promoted"]) == (0, [])
    listed = failures("--dataset", DATASET).answer
    assert [cause["promoted"] for cause in listed["causes"]] == [[name] for name in names]


def test_a_dataset_below_a_link_finds_its_problems(folder: Path, failures: Program) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "deep" / "er")
    (folder / "problems" / "square").mkdir()
    (folder / "problems" / "square" / "reference.py").write_text(REFERENCE)
    (folder / "problems" / "square" / "problem.yaml").write_text(
        "title: a\narithmetic: fp32\nworkloads: [{name: main}]\n"
    )
    assert failures("promote", "latest", WRONG.id[:8], "--to", "link/failures.yaml").code == 0
    assert "problem: ../../problems/square" in (folder / "link" / "failures.yaml").read_text()


def test_what_adds_nothing_leaves_no_problem_behind(folder: Path, failures: Program) -> None:
    assert failures("promote", "latest", WRONG.id[:8], "--to", DATASET).code == 0
    shutil.copytree(folder / "past", folder / "other")
    shutil.move(folder / "other/failures", folder / "other/elsewhere")
    text = (folder / DATASET).read_text().replace("failures/", "elsewhere/")
    (folder / "other/failures.yaml").write_text(text)
    assert failures("promote", "latest", WRONG.id[:8], "--to", "other/failures.yaml").code == 2
    assert not (folder / "other/failures").exists()


def test_a_second_of_a_cause_is_refused_with_the_name_of_the_first(folder: Path, failures: Program) -> None:
    assert failures("promote", "latest", "--to", DATASET).answer["promoted"] == ["solve/square/cpu/cpp"]
    again = failures("promote", "latest", "--to", DATASET)
    assert again.code == 2
    assert "solve/square/cpu/cpp is there, of the same cause" in again.answer["error"]


def test_what_was_refused_in_error_is_not_promoted_as_a_failure_too(folder: Path, failures: Program) -> None:
    short = WRONG.id[:8]
    assert failures("promote", "latest", short, "--wrongly-refused", "--to", DATASET).code == 0
    promoted = failures("promote", "latest", "--all", "--to", DATASET).answer["promoted"]
    assert promoted == [f"square/cpp/{CRASHED.id[:8]}", "solve/square/cpu/cpp"]


def test_what_was_kept_as_a_failure_is_not_accepted_without_a_word(folder: Path, failures: Program) -> None:
    short = WRONG.id[:8]
    assert failures("promote", "latest", short, "--to", DATASET).code == 0
    again = failures("promote", "latest", short, "--wrongly-refused", "--to", DATASET)
    said = f"square/cpp/{short} is there already, with another verdict that is due: take that case out first"
    assert (again.code, again.answer["error"]) == (2, said)


def test_a_kernel_that_is_no_text_cannot_be_shrunk(folder: Path, failures: Program) -> None:
    assert failures("promote", "latest", WRONG.id[:8], "--to", DATASET).code == 0
    kernel = folder / f"past/failures/cpp/square-{WRONG.id[:8]}.py"
    kernel.write_bytes(b"\xff")
    ended = failures("shrink", f"square/cpp/{WRONG.id[:8]}", "--dataset", DATASET, "--device", "cpu")
    assert ended.code == 2
    assert f"cannot read the candidate {kernel.relative_to(folder)}" in ended.answer["error"]


def test_a_run_without_failures_leaves_no_file(folder: Path, failures: Program) -> None:
    waits = RUN.model_copy(update={"id": "20261122-130000-abcd", "status": RunStatus.WAITING})
    with open_ledger(f"sqlite:///{folder / 'agentgen.db'}") as ledger:
        ledger.create_run(waits)
    assert failures("promote", waits.id, "--all", "--to", DATASET).answer["promoted"] == []
    assert not (folder / DATASET).exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("promote latest 99999999", "0 refused candidates"),
        ("promote latest --wrongly-refused", "needs the candidates"),
        (f"promote latest {WRONG.id[:8]} --all", "no candidates"),
        ("promote 1999", "no run"),
        ("shrink square/cpp/none", "cannot read"),
        ("shrink square/cpp/none --tries -1", "have to be above 0"),
        ("shrink square/cpp/none --minutes nan", "have to be above 0"),
    ],
)
def test_what_cannot_be_done_is_one_line(folder: Path, failures: Program, arguments: str, said: str) -> None:
    ended = failures(*arguments.split())
    assert ended.code == 2
    assert said in ended.answer["error"]
    assert not (folder / "past").exists()


def test_only_what_fails_can_be_shrunk(folder: Path, failures: Program) -> None:
    short = WRONG.id[:8]
    assert failures("promote", "latest", short, "--wrongly-refused", "--to", DATASET).code == 0
    ended = failures("shrink", f"square/cpp/{short}", "--dataset", DATASET)
    assert ended.code == 2
    assert "is to be accepted" in ended.answer["error"]


@pytest.mark.slow
def test_a_kernel_becomes_smaller_and_fails_as_before(folder: Path, failures: Program) -> None:
    source = "import math\n\nUNUSED = 3\n\n\nclass ModelNew:\n    pass\n\n\nsize = 12\nassert size == 13, size\n"
    folder.joinpath("past/cpp").mkdir(parents=True)
    kernel = folder / "past/cpp/clip.py"
    kernel.write_text(source)
    folder.joinpath(DATASET).write_text(
        f"name: past\nevaluators: [Decision, Cause]\ncases:\n- name: clip\n"
        f"  inputs: {{problem: {CLIP}, kernel: cpp/clip.py}}\n  metadata: {{devices: [cpu]}}\n"
        "  expected_output: {accepted: false, outcome: BUILD_FAILED, reasons: ['AssertionError: N']}\n"
    )
    ended = failures("shrink", "clip", "--dataset", DATASET, "--device", "cpu")
    assert ended.code == 0
    assert ended.answer["finished"]
    assert kernel.read_text() == "class ModelNew:\n    pass\nsize = 12\nassert size == 13, size\n"
    assert kernel.with_suffix(".original.py").read_text() == source
