"""What `agentgen eval` refuses before anything is judged, and what a fault of its surroundings ends with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cli_program import PROGRAM, Ended, agentgen_program

from agentgen.records.run import RunStatus
from agentgen.store.ledger import open_ledger

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.exp()


def get_inputs():
    return [torch.rand(64, 64)]


def get_init_inputs():
    return []
"""
DATASET = """
name: one
evaluators: [Decision]
cases:
- name: exp/solved
  inputs: {problem: exp.py, languages: [cpp], models: ['mailbox:box'], rounds: 1}
  metadata: {devices: [cpu]}
  expected_output: {accepted: true}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A problem from outside, and a dataset of it in another folder."""
    (tmp_path / "exp.py").write_text(REFERENCE)
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "one.yaml").write_text(DATASET)
    return tmp_path


def evaluate(folder: Path, *options: str, model: str = "", **environment: str) -> Ended:
    arguments = ("eval", "sets/one.yaml", "--device", "cpu", "--json", *options)
    return agentgen_program(*arguments, folder=folder, environment={"AGENTGEN_MODEL": model, **environment})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--root", ".", "--repeat", "0"), "--repeat is at least 1"),
        (("--root", ".", "--repeat", "1.5"), "--repeat: 1.5 is no whole number in digits"),
        (("--root", ".", "--limit-minutes", "0"), "--limit-minutes more than 0"),
        (("--root", ".", "--limit-minutes", "nan"), "--limit-minutes more than 0"),
        (("--root", ".", "--limit-minutes", "inf"), "--limit-minutes more than 0, and finite"),
        (("--root", ".", "--only", "nothing"), "has no such case that a cpu could decide"),
        (("--root", ".", "--model", "gpt-none"), "no server for the model gpt-none"),
        (("--root", ".", "--repeat", "2"), "--repeat 2 with the one mailbox mailbox:"),
        (("--root", "nowhere"), "nowhere/exp.py is missing"),
        ((), "exp.py is missing"),
    ],
)
def test_what_cannot_begin_is_one_line_and_leaves_nothing(folder: Path, options: tuple[str, ...], said: str) -> None:
    ended = evaluate(folder, *options)
    assert (ended.code, ended.answer["exit_code"]) == (2, 2), ended.stderr
    assert said in ended.answer["error"]
    assert not list(folder.rglob("*.jsonl"))


def test_a_problem_that_is_none_is_refused_before_anything_is_judged(folder: Path) -> None:
    (folder / "exp.py").write_text("class Model: ...")
    ended = evaluate(folder, "--root", ".")
    assert (ended.code, "get_inputs" in ended.answer["error"]) == (2, True), ended.stderr


@pytest.mark.parametrize(
    ("store", "said"),
    [("bogus", "AGENTGEN_STORE is no URL"), ("sqlite:////proc/none.db", "the run store /proc/none.db")],
)
def test_a_run_database_that_is_none_is_no_result_of_a_case(folder: Path, store: str, said: str) -> None:
    ended = evaluate(folder, "--root", ".", "--baseline", "base.json", "--update-baseline", AGENTGEN_STORE=store)
    assert (ended.code, said in ended.answer["error"]) == (2, True), ended.stderr
    assert not (folder / "base.json").exists()


@pytest.mark.parametrize(
    ("kernel", "source", "said"),
    [
        (
            "cuda/k.py",
            b"",
            "cuda/k.py is in cuda, and cpu runs none of it: give its case `metadata: {devices: [cuda]}`",
        ),
        ("cpp/k.py", b"\xff", "cannot read the candidate"),
        ("k.py", b"", "k.py lies in no folder called after its language"),
    ],
    ids=["of a GPU", "no text", "no language"],
)
def test_a_kernel_of_which_there_can_be_no_verdict_is_refused(
    folder: Path, kernel: str, source: bytes, said: str
) -> None:
    (folder / kernel).parent.mkdir(exist_ok=True)
    (folder / kernel).write_bytes(source)
    case = f"name: one\ncases:\n- {{name: k, inputs: {{problem: exp.py, kernel: {kernel}}}}}\n"
    (folder / "sets" / "one.yaml").write_text(case)
    ended = evaluate(folder, "--root", ".")
    assert (ended.code, said in ended.answer["error"]) == (2, True), ended.answer["error"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("rounds: 0", "cases.0.inputs.Solve.rounds: Input should be greater than 0"),
        ("caps: {usd: -1}", "cases.0.inputs.Solve.caps.usd: Input should be greater than 0"),
        ("kernel: k.py, depth: far", "cases.0.inputs.Subject.depth: Input should be 'judge' or 'certify'"),
        ("kernel: k.py, rounds: 2", "cases.0.inputs.Subject.rounds: Extra inputs are not permitted"),
    ],
)
def test_a_mistake_in_a_case_is_told_as_what_it_is(folder: Path, wrong: str, said: str) -> None:
    case = f"name: one\ncases:\n- {{name: k, inputs: {{problem: exp.py, {wrong}}}}}\n"
    (folder / "sets" / "one.yaml").write_text(case)
    ended = evaluate(folder, "--root", ".")
    assert (ended.code, said in ended.answer["error"]) == (2, True), ended.answer["error"]


@pytest.mark.slow
def test_what_stdout_does_not_take_is_kept(folder: Path) -> None:
    (folder / "cpp").mkdir()
    (folder / "cpp" / "k.py").write_text("class ModelNew: ...\n")
    case = "name: one\ncases:\n- {name: k, inputs: {problem: exp.py, kernel: cpp/k.py}}\n"
    (folder / "sets" / "one.yaml").write_text(case)
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, "eval", "sets/one.yaml", "--root", ".", "--device", "cpu", "--json"],
            cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert ended.returncode == 2
    assert len(list(folder.rglob("eval-*.jsonl"))) == 1
    again = evaluate(folder, "--root", ".")
    assert (again.code, "1 of 1 finished" in again.stderr) == (0, True), again.stderr


@pytest.mark.slow
def test_a_problem_of_a_checkout_is_looked_at_and_waits_for_its_answers(folder: Path) -> None:
    ended = evaluate(folder, "--root", ".", model="gpt-none")
    assert ended.code == 75, ended.stderr  # the case says who is asked
    assert "is waiting for 1 answer in" in ended.answer["failures"]["exp/solved"]
    assert len(list((folder / "box").glob("ideas-*.request.md"))) == 1, "relative to the root, as all paths"
    again = evaluate(folder, "--root", ".", model="gpt-none")
    assert (again.code, "0 of 1 finished, 1 searches begun" in again.stderr) == (75, True)


@pytest.mark.slow
def test_a_problem_that_cannot_be_judged_is_a_failure_of_its_case(folder: Path) -> None:
    (folder / "exp.py").write_text(REFERENCE.replace("x.exp()", "x * 0"))
    ended = evaluate(folder, "--root", ".")
    assert ended.code == 1
    assert "zeros passes every value family" in ended.answer["failures"]["exp/solved"]
    assert not list(folder.rglob("eval-*.jsonl")), "it fails the next time as well"


@pytest.mark.slow
def test_a_search_that_may_not_take_longer_asks_nobody_and_is_unsolved(folder: Path) -> None:
    ended = evaluate(folder, "--root", ".", "--limit-minutes", "0.001")
    assert ended.code == 1, ended.stderr
    assert ended.answer["failures"] == {}
    (case,) = ended.answer["cases"].values()
    assert (case["outcome"], case["reasons"]) == (None, ["no candidate was evaluated"])
    assert not (folder / "box").exists()
    with open_ledger(f"sqlite:///{folder / 'results' / 'agentgen.db'}") as ledger:
        (run,) = ledger.runs()
    assert (run.status, run.caps.minutes) == (RunStatus.STOPPED, 0.001)
