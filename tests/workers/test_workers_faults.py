"""Machines that fail while a candidate is evaluated: it is never held against the candidate, the next evaluation is by
a fresh judge, and nothing is left of the old one. Real programs, killed.

A judge that is killed is in test_workers_local.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from workers_judges import HANGS, TORCH_S_OWN, gone, judge_of, leaders, problem, processes, scratch

from agentgen.errors import SandboxUnavailable
from agentgen.records.candidate import Candidate, Language
from agentgen.records.trial import Outcome
from agentgen.workers.local import LocalJudge

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ORCHESTRATOR = """
import sys
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Effort
from agentgen.workers.local import LocalJudge

judge = LocalJudge(Problem.model_validate_json(sys.argv[1]), "cpu", Arithmetic.FP32, Effort.QUICK)
candidate = Candidate(source=sys.argv[2], language=Language.CPP)
judge.evaluate(candidate, lambda stage: stage in {"wait", "open the judge"} or print(stage, flush=True))
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where judges keep what is temporary; also how their processes are told from others'."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def judge(temporary: Path) -> Iterator[LocalJudge]:
    """Afterwards it is as good as new."""
    with judge_of(problem()) as one:
        yield one
        trial = one.evaluate(Candidate(source=TORCH_S_OWN, language=Language.CPP), timing=False)
        assert trial.outcome is Outcome.PASSED, trial.reasons
        assert len(scratch(temporary)) == 1, "that of the judge which has taken over"
    assert gone(temporary)
    assert scratch(temporary) == []


@pytest.fixture
def orchestrator(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """A program whose judge waits for a candidate that hangs."""
    process = subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, problem().model_dump_json(), HANGS],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_a_killed_zygote_is_the_machine_s_fault(judge: LocalJudge, temporary: Path) -> None:
    judge.target()
    (zygote,) = leaders(temporary)

    def kill(stage: str) -> None:
        if stage == "build":
            threading.Timer(0.5, os.kill, (zygote, signal.SIGKILL)).start()

    with pytest.raises(SandboxUnavailable, match="the guests' zygote failed"):
        judge.evaluate(Candidate(source=HANGS, language=Language.CPP), kill)
    assert gone(temporary)
    assert scratch(temporary) == []


def test_a_temporary_folder_that_somebody_empties_is_the_machine_s_fault(judge: LocalJudge, temporary: Path) -> None:
    judge.target()
    (folder,) = scratch(temporary)
    shutil.rmtree(folder)
    with pytest.raises(SandboxUnavailable, match="no guest can be started"):
        judge.evaluate(Candidate(source=TORCH_S_OWN, language=Language.CPP))
    assert gone(temporary)


def test_a_full_disk_is_the_machine_s_fault(temporary: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(temporary)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only who may mount has a small disk")
    try:
        with judge_of(problem()) as one, pytest.raises(SandboxUnavailable, match=r"only \d+ MiB are free"):
            one.evaluate(Candidate(source=TORCH_S_OWN, language=Language.CPP))
        assert gone(temporary)
        assert scratch(temporary) == []
    finally:
        subprocess.run(["umount", str(temporary)], check=True)


def test_a_killed_orchestrator_takes_everything_with_it(orchestrator: subprocess.Popen[str], temporary: Path) -> None:
    assert orchestrator.stdout
    assert [orchestrator.stdout.readline().strip() for _ in range(2)] == ["start", "build"]
    modules = list(processes(temporary).values())
    assert modules.count("agentgen.verify.program") == 1
    assert modules.count("agentgen.sandbox.guest.zygote") >= 2
    assert len(leaders(temporary)) == 2, "the zygote and its guest"
    orchestrator.kill()
    assert gone(temporary)
    assert scratch(temporary) == []


def test_an_orchestrator_that_is_killed_while_its_judge_opens(
    orchestrator: subprocess.Popen[str], temporary: Path
) -> None:
    while "agentgen.sandbox.guest.zygote" not in processes(temporary).values():
        assert orchestrator.poll() is None
        time.sleep(0.01)
    orchestrator.kill()
    assert gone(temporary)
    assert scratch(temporary) == []
