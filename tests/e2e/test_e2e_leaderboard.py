"""From a run to the leaderboard and back through the judge, with the real one."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from e2e_square import FORGETS_THE_WEIGHT, HONEST, command, environment

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Plan, Run
from agentgen.store import catalog, entries
from agentgen.store.ledger import open_ledger

BUSY = {"clocks agree", "instruments agree", "every call counts", "neighbouring shapes"}
"""What only times tell, and another program at work blurs."""


def agentgen(home: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """As that of `e2e_square`, with time for several certificates."""
    line = command(*arguments, "--json")
    done = subprocess.run(line, cwd=home, env=environment(home), capture_output=True, text=True, timeout=400)
    return done.returncode, json.loads(done.stdout)


def stored(home: Path) -> tuple[Candidate, Candidate]:
    """Stores a run in which a model wrote an honest kernel and a wrong one."""
    problem = catalog.load("square", home / "problems")
    run = Run(
        id="20261122-120000-abcd",
        problem=problem,
        arithmetic=Arithmetic.FP32,
        device="cpu",
        languages=(Language.CPP,),
        models=("mailbox",),
        plan=Plan(),
        created=datetime(2026, 11, 22, 12, tzinfo=UTC),
    )
    sources = tuple(source.strip() + "\n" for source in (HONEST, FORGETS_THE_WEIGHT))
    honest, wrong = (Candidate(source=source, language=Language.CPP) for source in sources)
    root = problem.root(Arithmetic.FP32)
    with open_ledger(f"sqlite:///{home / 'results' / 'agentgen.db'}") as ledger:
        ledger.create_run(run)
        for nth, candidate in enumerate((honest, wrong)):
            asked = ChatRequest(
                role=Role.REFINE, problem="square", target="cpp", parent=root, nth=nth, system="s", prompt="p"
            )
            reply = ChatReply(text=f"```python\n{candidate.source}```\n", model="somebody")
            ledger.add_reply(run.id, asked, reply)
            ledger.add_candidate(run.id, 1, candidate)
    return honest, wrong


def certified(home: Path, candidate: Candidate) -> tuple[int, dict[str, Any]]:
    """Enters a kernel, in a second or third go where a busy machine was mistaken for a cheat: beside two other test
    processes a call took 685 us where each had inputs of its own, and 456 us where they came again."""
    line = ("leaderboard", "add", "latest", candidate.id[:8])
    code, answer = agentgen(home, *line)
    for _ in range(2):
        if answer["accepted"] or {check["name"] for check in answer["checks"] if check["passed"] is False} - BUSY:
            break
        code, answer = agentgen(home, *line)
    return code, answer


@pytest.mark.slow
def test_a_kernel_is_certified_entered_and_judged_again(home: Path) -> None:
    honest, _ = stored(home)
    code, answer = certified(home, honest)
    assert (code, answer["accepted"], answer["depth"]) == (0, True, "certify"), answer["reasons"]
    checks = {check["name"]: check["passed"] for check in answer["checks"]}
    assert checks["100 draws"] is checks["guard pages"] is True
    assert checks["memory checker"] is checks["throttling"] is None
    assert "second measurement" in checks
    assert answer["timing"]["guests"] == 2
    folder = Path(answer["entry"])
    assert (folder / "kernel.py").read_bytes() == honest.source.encode()
    kept = entries.read(folder)
    assert kept.entry.trial.candidate == honest.id == folder.name
    assert (kept.entry.origin.model, kept.entry.origin.run) == ("somebody", "20261122-120000-abcd")

    shutil.rmtree(home / "results" / "runs", ignore_errors=True)
    (home / "results" / "agentgen.db").unlink()  # from nothing but the folder
    code, answer = agentgen(home, "reverify", str(folder))
    assert answer["verdict"] in {"same", "faster", "slower"}, answer  # which one depends on who else is at work
    assert code == (1 if answer["verdict"] == "slower" else 0)
    assert answer["now"]["machine"] == kept.entry.trial.machine.model_dump(mode="json")
    (noted,) = entries.read(folder).again
    assert noted.finding.value == answer["verdict"]

    code, answer = agentgen(home, "leaderboard")
    assert (code, [one["kernel"] for one in answer["entries"]]) == (0, [honest.id])
    assert answer["entries"][0]["reverified"]["finding"] == noted.finding.value
