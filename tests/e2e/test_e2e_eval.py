"""`agentgen eval` with the real judge: waiting, killed, interrupted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from e2e_square import FORGETS_THE_WEIGHT, HONEST, PROBLEM, REFERENCE, command, environment

from agentgen.models.exchange import reply_path
from agentgen.records.base import content_hash
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.idea import Idea
from agentgen.records.run import RunStatus
from agentgen.store.ledger import open_ledger

DATASET = """
name: three
evaluators: [Decision, Cause]
report_evaluators: [Confusion, ErrorRates]
cases:
- name: honest
  inputs: {problem: problems/square, kernel: cpp/honest.py}
  metadata: {devices: [cpu]}
  expected_output: {accepted: true}
- name: forgets
  inputs: {problem: problems/square, kernel: cpp/forgets.py}
  metadata: {devices: [cpu]}
  expected_output: {accepted: false, by: [values]}
- name: solved
  inputs: {problem: problems/square, languages: [cpp], models: ['mailbox:box'], rounds: 1}
  metadata: {devices: [cpu]}
  expected_output: {accepted: true}
"""
IDEA = {
    "category": "parallelism and occupancy",
    "title": "One thread per block of rows",
    "reasoning": "Rows are independent.",
    "predicted_speedup": 1.2,
}
TEXTS = {"ideas": json.dumps({"ideas": [IDEA]}), "write": f"```python\n{HONEST}\n```"}


def evaluate(home: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Returns the exit code of an evaluation, its answer, and what it said."""
    done = subprocess.run(
        command("eval", "three.yaml", "--device", "cpu", "--json", *options),
        cwd=home,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def started(home: Path, *options: str) -> subprocess.Popen[str]:
    """Starts one."""
    return subprocess.Popen(
        command("eval", "three.yaml", "--device", "cpu", *options),
        cwd=home,
        env={**environment(home), "TMPDIR": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(box: Path) -> None:
    """Answers every open request by its role."""
    for request in box.glob("*.request.md"):
        reply = request.with_name(request.name.replace(".request.", ".reply."))
        if not reply.exists():
            reply.write_text(TEXTS[request.name.split("-")[0]])
    time.sleep(0.3)  # a mailbox reads a file only when it has been left alone for 0.2 s


def runs(home: Path) -> dict[str, tuple[RunStatus, int]]:
    """Returns where each run stands, and how many trials it has."""
    with open_ledger(environment(home)["AGENTGEN_STORE"]) as ledger:
        return {run.id: (run.status, len(ledger.trials(run.id))) for run in ledger.runs()}


def journals(home: Path) -> list[Path]:
    return list((home / "results" / "runs").glob("eval-*.jsonl"))


def processes(marker: str) -> list[str]:
    """Pids whose environment or command line names this test's folder."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in text:
            found.append(entry.name)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a dataset of two kernels and a problem."""
    square = tmp_path / "problems" / "square"
    square.mkdir(parents=True)
    (square / "reference.py").write_text(REFERENCE)
    (square / "problem.yaml").write_text(PROBLEM)
    (tmp_path / "cpp").mkdir()
    (tmp_path / "cpp" / "honest.py").write_text(HONEST)
    (tmp_path / "cpp" / "forgets.py").write_text(FORGETS_THE_WEIGHT)
    (tmp_path / "three.yaml").write_text(DATASET)
    return tmp_path


@pytest.fixture
def answered(home: Path) -> Path:
    """The same, with all answers in the mailbox before they are asked for."""
    root = content_hash("root", REFERENCE, "fp32")
    idea = Idea.model_validate({**IDEA, "parent": root})
    for role, target, parent in ((Role.IDEAS, "cpu", root), (Role.WRITE, "cpp", idea.id)):
        request = ChatRequest(role=role, problem="square", target=target, parent=parent, system="", prompt="")
        reply = reply_path(home / "box", request)
        reply.parent.mkdir(exist_ok=True)
        reply.write_text(TEXTS[role.value])
    return home


@pytest.mark.slow
def test_an_evaluation_waits_for_answers_and_does_nothing_twice_meanwhile(home: Path) -> None:
    code, first, said = evaluate(home, "--save", "first.json")
    assert code == 75, said
    assert "is waiting for 1 answer in" in first["failures"]["solved"]
    assert "[2 of 3, 1 left] " in said
    assert len(journals(home)) == 1
    answer(home / "box")
    code, _, said = evaluate(home)
    assert (code, "2 of 3 finished, 1 searches begun" in said) == (75, True), said
    answer(home / "box")
    code, last, said = evaluate(home, "--save", "last.json")
    assert (code, last["as_expected"], last["failures"]) == (0, True, {}), said
    assert list(last["cases"]) == ["honest", "forgets", "solved"]
    assert [count for _, count in runs(home).values()] == [1]
    durations = [
        {case["name"]: case["task_duration"] for case in json.loads((home / name).read_text())["cases"]}
        for name in ("first.json", "last.json")
    ]
    assert durations[0].items() <= durations[1].items(), "they were not judged again"
    assert journals(home) == []
    assert str(home) not in (home / "last.json").read_text()


@pytest.mark.slow
def test_one_that_is_killed_at_any_moment_ends_as_if_nobody_had(answered: Path) -> None:
    home, moments = answered, random.Random(8)
    with started(home) as program:
        time.sleep(moments.uniform(2.0, 12.0))
        program.kill()
    code, found, said = evaluate(home)
    assert (code, found["as_expected"], found["failures"]) == (0, True, {}), said
    assert list(found["cases"]) == ["honest", "forgets", "solved"]
    assert list(runs(home).values()) == [(RunStatus.DONE, 1)], "one run, that went on"
    assert journals(home) == []


@pytest.mark.slow
def test_ctrl_c_ends_a_search_and_leaves_no_process(answered: Path) -> None:
    home = answered
    with started(home, "--only", "solved") as program:
        assert program.stderr
        for line in program.stderr:
            if line.startswith("solved: run "):
                break
        time.sleep(1.0)
        begun = time.monotonic()
        program.send_signal(signal.SIGINT)
        said = program.stderr.read()
        code = program.wait(30)
    assert (code, "the same command goes on where it was" in said) == (130, True), said
    assert "Traceback" not in said
    assert "pending" not in said
    assert time.monotonic() - begun < 15, "7 s for a judge that waits for its turn, and does not hear"
    ((status, trials),) = runs(home).values()
    assert (status is RunStatus.DONE, trials) == (False, 0)
    deadline = time.monotonic() + 10
    while processes(str(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes(str(home)) == []
    code, _, said = evaluate(home, "--only", "solved")
    assert (code, "run" in said and "goes on" in said) == (0, True), said
    assert list(runs(home).values()) == [(RunStatus.DONE, 1)]
