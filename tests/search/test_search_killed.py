"""A run killed with SIGKILL, 50 times at random moments: nothing is lost, nothing is done twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import anyio
import pytest
from search_factories import ReplayJudge, ScriptedModel
from search_script import DONE, contents, script, search

from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, ChatRequest
from agentgen.records.trial import Trial
from agentgen.store.ledger import Ledger, open_ledger

KILLS = 50
STEP_S = 0.004
"""How long an answer and an evaluation take, so that kills fall into them too, and not only between."""


class LoggedModel(ScriptedModel):
    """Says on paper what it answers."""

    def __init__(self, log: Path) -> None:
        super().__init__(script)
        self._log = log

    async def ask(self, request: ChatRequest) -> ChatReply:
        note(self._log, request.id)
        await anyio.sleep(STEP_S)
        return await super().ask(request)


class LoggedJudge(ReplayJudge):
    """Says on paper what it evaluates."""

    def __init__(self, log: Path) -> None:
        super().__init__(interrupt=lambda: time.sleep(STEP_S))
        self._log = log

    async def evaluate(self, candidate: Candidate, on_stage: object) -> Trial:
        note(self._log, candidate.id)
        return await super().evaluate(candidate, lambda _stage: None)


def note(log: Path, line: str) -> None:
    """One write to a file opened for appending is whole or not at all."""
    with log.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def go_on(store: str, log: Path) -> None:
    with open_ledger(store) as ledger:
        os._exit(0 if search(ledger, LoggedModel(log), LoggedJudge(log)) == DONE else 1)


def killed(store: str, log: Path, after_s: float) -> bool:
    """Goes on with the run in another process; returns whether that was killed before it came to its end."""
    child = multiprocessing.get_context("fork").Process(target=go_on, args=(store, log))
    child.start()
    child.join(after_s)
    if child.is_alive():
        os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def done_already(ledger: Ledger) -> set[str]:
    """Returns what is stored: requests with their replies, candidates with their trials."""
    if not ledger.runs():
        return set()
    answered = {exchange.request.id for exchange in ledger.exchanges("run-1") if exchange.reply}
    return answered | {trial.candidate for trial in ledger.trials("run-1")}


@pytest.mark.slow
def test_fifty_kills_at_random_moments(ledger: Ledger, tmp_path: Path) -> None:
    begin = time.monotonic()
    search(ledger, LoggedModel(tmp_path / "whole.log"), LoggedJudge(tmp_path / "whole.log"))
    whole_s, whole = time.monotonic() - begin, contents(ledger)
    kills = runs = 0
    moments = random.Random(int.from_bytes(os.urandom(4)))
    while kills < KILLS:
        runs += 1
        store, log = f"sqlite:///{tmp_path}/{runs}.db", tmp_path / f"{runs}.log"
        ended = False
        while not ended:
            with open_ledger(store) as other:
                stored = done_already(other)
            before = log.read_text() if log.exists() else ""
            ended = not killed(store, log, moments.uniform(0.01, whole_s))
            kills += not ended
            done_now = log.read_text().removeprefix(before).split() if log.exists() else []
            assert not stored & set(done_now), "done twice"
            assert len(done_now) == len(set(done_now))
        with open_ledger(store) as other:
            assert contents(other) == whole
