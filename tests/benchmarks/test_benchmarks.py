"""The parts of the benchmarks that measure nothing, and both programs once, small. `identical.py` needs a GPU."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import leftovers
import pytest
import soak
from evaluation import PLAIN, evaluate_plainly
from faults import ENDLESS, ON_GPU, QUICK, faulty
from figures import EXPECTED, PLAIN_STAGES, STAGES, reproduced, summary, table
from leftovers import Census
from mix import ROOT, known, mix, pick

from agentgen.records.problem import DeviceType, OwnWork
from agentgen.records.trial import Stage
from agentgen.verify.checks.screens import screen
from agentgen.verify.findings import Findings

HERE = Path(__file__).parent
DEVICES: tuple[DeviceType, ...] = ("cpu", "cuda")
NOTHING = Census(frozenset(), frozenset(), frozenset(), frozenset(), frozenset(), None)
needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH")


def judged(name: str, *, honest: bool, accepted: bool, opened_s: float = 0.0, **stages: float) -> dict[str, Any]:
    row = {"name": name, "problem": "problems/softmax", "language": "cuda", "honest": honest, "accepted": accepted}
    return {**row, "opened_s": opened_s, "stages": stages, "seconds": sum(stages.values()) + 0.5}


def plain(wall_s: float, **seconds: float) -> dict[str, Any]:
    row = {"problem": "problems/softmax", "language": "cuda", "error": None, "wall_s": wall_s}
    return {**row, "seconds": {**dict.fromkeys(PLAIN_STAGES[:-1], 0.0), **seconds}}


def evaluated(name: str, kind: str, outcome: str, *failures: str) -> dict[str, Any]:
    accepted = None if outcome == "LOST" else outcome == "PASSED"
    row = {"name": name, "kind": kind, "outcome": outcome, "accepted": accepted, "reasons": ["so"]}
    return {**row, "failures": list(failures), "judge": {"descriptors": 13}}


# ---- the mix ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_a_third_is_hostile_and_those_of_a_problem_stand_together(device: DeviceType) -> None:
    entries = mix(device, 40)
    assert Counter(entry.honest for entry in entries) == {True: 27, False: 13}
    problems = [entry.problem for entry in entries]
    assert problems == sorted(problems, key=str)
    assert entries == mix(device, 40)


def test_nothing_of_a_problem_comes_twice_before_all_of_it_came_once() -> None:
    entries = [entry for entry in known("cpu") if entry.honest]
    assert len({entry.name for entry in pick(entries, 24, seed=3)}) == 24


def test_a_mix_of_a_problem_without_cheats() -> None:
    with pytest.raises(ValueError, match="not both honest kernels and cheats"):
        mix("cuda", 6, ("layernorm",))


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_evaluated_plainly_is_there(device: DeviceType) -> None:
    for problem, kernel, _ in PLAIN[device]:
        assert (ROOT / problem / "reference.py").is_file()
        ast.parse(kernel.read_text())


@pytest.mark.parametrize("device", DEVICES)
def test_faults_pass_the_screen_and_call_what_they_define(device: DeviceType) -> None:
    honest = next(entry for entry in known(device) if entry.honest)
    for fault in (*QUICK[device], *ENDLESS[device]):
        entry = faulty(honest, fault)
        screen(Findings(), entry.candidate, OwnWork.STRICT)
        assert not entry.honest
        called = entry.candidate.source.rpartition("faults.")[2].split("(")[0].removesuffix("[1, 1]")
        mark = "__global__ " if fault in ON_GPU else 'extern "C" '
        assert f"{mark}void {called}(" in entry.candidate.source


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_a_summary() -> None:
    rows = [
        judged("a", honest=True, accepted=True, opened_s=4.0, build=1.0, check=2.0, time=3.0),
        judged("b", honest=False, accepted=True, build=3.0),
    ]
    failed = {**judged("c", honest=False, accepted=False), "accepted": None}
    found = summary(rows, [plain(30.0), {**plain(1.0), "error": "no nvcc"}], wall_s=14.0)
    assert found["on_device"] == pytest.approx(5 / 14)
    assert found["judged_per_minute"] == pytest.approx(60 * 2 / 14)
    assert (found["plain"], found["plain_failed"], found["plain_per_minute"]) == (1, 1, 2.0)
    assert found["stages"]["open"] == {"n": 1, "median_s": 4.0, "mean_of_all_s": 2.0}
    assert found["stages"]["build"] == {"n": 2, "median_s": 2.0, "mean_of_all_s": 2.0}
    assert found["stages"]["other"]["median_s"] == pytest.approx(0.5)
    assert found["unexpected"] == ["b"]
    assert summary([failed], [], 1.0)["unexpected"] == ["c"], "the machine failed"
    assert found["pairs"][0]["judged_s"] == 6.5, "only the honest one is compared"
    assert "judged a minute / plain a minute: 4.29" in table(found)


def test_stages_are_the_judge_s() -> None:
    assert set(get_args(Stage)) - {"certify"} == set(STAGES) - {"open", "other"}


def test_published_stages_are_within_thirty_percent_or_not() -> None:
    expected = EXPECTED["softmax", "cuda"]
    own = {stage: 1.2 * seconds for stage, seconds in expected.items() if stage != "wall"}
    rows = reproduced([plain(2 * expected["wall"], **own)])
    assert {row["stage"]: row["within"] for row in rows} == {**dict.fromkeys(own, True), "wall": False}


def test_a_summary_of_nothing() -> None:
    assert "no rate" in table(summary([], [], 0.0))


# ---- promises --------------------------------------------------------------------------------------------------------


def test_kept_promises() -> None:
    rows = [
        evaluated("a", "honest", "PASSED", "JudgeDied: killed"),
        evaluated("b", "cheat", "CHEATED"),
        evaluated("c", "segfault", "CRASHED"),
    ]
    assert soak.broken(rows, 3, 1, NOTHING, NOTHING) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (evaluated("a", "honest", "WRONG_VALUES"), "a (honest): WRONG_VALUES: so"),
        (evaluated("a", "cheat", "PASSED"), "a (cheat): PASSED"),
        (evaluated("a", "honest", "LOST"), "a (honest): LOST"),
        (evaluated("a", "cheat", "LOST"), "a (cheat): LOST"),
        (evaluated("a", "abort", "BUILD_FAILED"), "its fault was never seen"),
        (evaluated("a", "honest", "PASSED", "JudgeDied: of itself"), "1 failures of the machine, and 0 judges killed"),
    ],
)
def test_broken_promises(row: dict[str, Any], said: str) -> None:
    (promise,) = soak.broken([row], 1, 0, NOTHING, NOTHING)
    assert said in promise


def test_what_is_left_and_what_is_missing_is_a_broken_promise() -> None:
    after = Census(frozenset({"7 a judge"}), frozenset(), frozenset({"sem"}), frozenset(), frozenset(), None)
    promises = soak.broken([], 1, 0, NOTHING, after)
    assert promises == ["0 of 1 candidates were evaluated", "left: processes: 7 a judge", "left: shared_memory: sem"]


def test_the_tasks_of_a_soak() -> None:
    tasks = soak.tasks("cpu", 60, endless=2, seed=0)
    kinds = Counter(task.entry.kind for task in tasks)
    assert (len(tasks), kinds["honest"], kinds["cheat"]) == (60, 40, 10)
    assert kinds["loop"] == kinds["stopped"] == 1
    assert sum(task.killed for task in tasks) == 2
    assert all(task.timing for task in tasks if task.entry.kind == "cheat")
    assert sum(task.timing for task in tasks if task.entry.honest) == 4


def test_a_judge_is_killed_within_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(soak, "judges", lambda: [process.pid])
        killer = soak.Killer(seed=0)
        with killer.during():
            pass
        assert process.poll() is None, "none is due"
        killer.due = 1
        with killer.during():
            assert process.wait(10) == -signal.SIGKILL
        assert (killer.due, killer.fired, killer.judges) == (0, 1, {process.pid})


def test_processes_are_found_by_their_folder_and_by_their_parent(tmp_path: Path) -> None:
    with (
        subprocess.Popen(["sleep", "61"], env={**os.environ, "TMPDIR": str(tmp_path)}) as ours,
        subprocess.Popen(["sleep", "62"]) as child,
    ):
        deadline = time.monotonic() + 5
        while leftovers.processes(tmp_path).get(child.pid) != "sleep 62 " and time.monotonic() < deadline:
            time.sleep(0.01)  # until it is `sleep`
        found = leftovers.processes(tmp_path)
        ours.kill()
        child.kill()
    assert (found[ours.pid], found[child.pid]) == ("sleep 61 ", "sleep 62 ")
    assert os.getpid() not in found


# ---- the programs ----------------------------------------------------------------------------------------------------


def program(name: str, count: str, out: Path, *more: str) -> str:
    """Runs one on the problem whose trials are the shortest."""
    arguments = ["--count", count, "--problems", "norm", "--out", str(out), *more]
    done = subprocess.run(
        [sys.executable, str(HERE / name), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@needs_gcc
def test_the_plain_evaluator_on_a_kernel_that_needs_no_headers_of_torch() -> None:
    found = evaluate_plainly(ROOT / "tests/problems/softmax", ROOT / "tests/honest/cpp/softmax.py", "cpu")
    assert found["error"] is None
    assert found["correct"]
    assert set(found["seconds"]) == {*PLAIN_STAGES, "draws"} - {"other"}


@pytest.mark.slow
def test_a_plain_evaluation_that_fails(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("raise ValueError('no kernel')")
    found = evaluate_plainly(ROOT / "tests/problems/softmax", tmp_path / "kernel.py", "cpu")
    assert "no kernel" in found["error"]


@pytest.mark.slow
@needs_gcc
def test_evaluation(tmp_path: Path) -> None:
    said = program("evaluation.py", "2", tmp_path / "out.json", "--plain-count", "0")
    assert "judged: n 2" in said
    assert "unexpected verdicts: none" in said
    written = json.loads((tmp_path / "out.json").read_text())
    assert len(written["judged"]) == 2
    assert written["machine"]["device_type"] == "cpu"


@pytest.mark.slow
@needs_gcc
def test_a_soak(tmp_path: Path) -> None:
    said = program("soak.py", "6", tmp_path / "out.json", "--endless", "0")
    assert "every promise was kept" in said
    # Itself and its zygote; where there are jails what founds them, and process 1 of the next.
    assert re.search(r"a judge's processes: [2-4] to [24]\n", said)
    written = json.loads((tmp_path / "out.json").read_text())
    assert [row["accepted"] for row in written["evaluations"]].count(True) == 4
