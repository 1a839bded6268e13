"""The next judge's program, got ready while one judges: real programs, on a CPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from workers_judges import TORCH_S_OWN, gone, problem, processes

from agentgen.records.candidate import Candidate, Language
from agentgen.records.run import Effort, Isolation
from agentgen.workers import programs
from agentgen.workers.local import LocalJudge
from agentgen.workers.programs import Programs


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where judges keep what is temporary; afterwards none is left that does."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert gone(tmp_path)


@pytest.fixture
def _room(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """As on a GPU's machine with cores to spare."""

    def room(_: str) -> bool:
        return True

    monkeypatch.setattr(programs, "_has_room", room)


def judges(temporary: Path, count: int) -> set[int]:
    """Returns the programs of judges, of which there should be so many. One that was started just now has neither
    environment nor command to be read for a moment, and is looked for again."""
    deadline = time.monotonic() + 10
    while True:
        found = {pid for pid, module in processes(temporary).items() if module.endswith("verify.program")}
        if len(found) == count or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def judge_among(ready: Programs) -> LocalJudge:
    stated = problem()
    return LocalJudge(stated, "cpu", stated.arithmetic, Effort.QUICK, Isolation.JAIL, ready)


def test_on_a_cpu_none_is_started_beside_a_judge(temporary: Path) -> None:
    with closing(Programs("cpu", Isolation.JAIL)) as ready:
        ready.prepare()
        assert processes(temporary) == {}


@pytest.mark.slow
@pytest.mark.usefixtures("_room")
def test_the_next_judge_is_opened_in_the_program_that_was_prepared(temporary: Path) -> None:
    with closing(Programs("cpu", Isolation.JAIL)) as ready:
        with judge_among(ready) as first:
            first.target()
            assert len(judges(temporary, 2)) == 2
        (left,) = judges(temporary, 1)
        with judge_among(ready) as second:
            second.target()
            assert left in judges(temporary, 2)
            assert len(judges(temporary, 2)) == 2
            trial = second.evaluate(Candidate(source=TORCH_S_OWN, language=Language.CPP), timing=False)
            assert trial.checks


@pytest.mark.slow
@pytest.mark.usefixtures("_room")
def test_one_that_has_died_is_replaced(temporary: Path) -> None:
    with closing(Programs("cpu", Isolation.JAIL)) as ready:
        ready.prepare()
        (dead,) = judges(temporary, 1)
        os.kill(dead, signal.SIGKILL)
        with judge_among(ready) as judge:
            assert judge.target().problem == problem().name
            assert dead not in judges(temporary, 1)
