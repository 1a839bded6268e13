"""A run is carried to another machine, judged there, and brought back; a finished one becomes a recording."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from e2e_square import HONEST, agentgen
from written_requests import read_request

from agentgen.records.candidate import Candidate, Language
from agentgen.records.idea import Category, Idea
from agentgen.store.ledger import open_ledger
from agentgen.store.transfer import FILE, pack

pytestmark = pytest.mark.slow

IDEA = {"category": "memory access", "title": "One pass", "reasoning": "Once.", "predicted_speedup": 1.2}


def test_a_run_is_judged_elsewhere_and_goes_on_here(home: Path, tmp_path: Path) -> None:
    code, answer = agentgen(home, "solve", "square", "--model", "mailbox", "--device", "cpu", "--rounds", "1")
    assert code == 75
    run = answer["run"]
    here = home / "results" / "runs" / run
    (request,) = (here / "mailbox").glob("*.request.md")
    root = read_request(request).parent
    # A candidate that could not be judged where it was written: its device was away.
    with open_ledger(f"sqlite:///{home}/results/agentgen.db") as ledger:
        idea = Idea(parent=root, category=Category.COMPUTE, title="Plain", reasoning="First.")
        candidate = Candidate(source=HONEST, language=Language.CPP, idea=idea.id)
        ledger.add_idea(run, 1, idea)
        ledger.add_candidate(run, 1, candidate)
        pack(ledger, run, here)

    away = tmp_path / "away"
    shutil.copytree(home / "problems", away / "problems")
    there = away / "results" / "runs" / run
    shutil.copytree(here, there)
    code, judged = agentgen(away, "evaluate", str(there))
    assert code == 0
    assert [trial["outcome"] for trial in judged["trials"]] == ["PASSED"]
    assert not list((there / "mailbox").glob("write*")), "evaluate asks nobody"
    code, again = agentgen(away, "evaluate", run)
    assert (code, again["trials"]) == (0, judged["trials"]), "what was judged is not judged again"

    shutil.copy(there / FILE, here / FILE)
    code, back = agentgen(home, "resume", run)
    assert code == 75  # the ideas are still to come
    assert back["trials"] == judged["trials"]


def test_a_finished_run_becomes_a_recording_that_replays(home: Path) -> None:
    mailbox = home / "mailbox"
    arguments = ("solve", "square", "--device", "cpu", "--rounds", "1")
    texts = {"ideas": json.dumps({"ideas": [IDEA]}), "write": f"```python\n{HONEST}\n```"}
    code, answer = agentgen(home, *arguments, "--model", f"mailbox:{mailbox}")
    while code == 75:
        for request in mailbox.glob("*.request.md"):
            role = request.name.partition("-")[0]
            request.with_name(request.name.replace(".request.", ".reply.")).write_text(texts[role])
        code, answer = agentgen(home, "resume", "latest")
    assert code == 0

    code, kept = agentgen(home, "record", "latest", "--model", "a colleague", "--note", "By hand.")
    assert (code, kept["added"], kept["kept"]) == (0, 2, 0)
    folder = home / "problems" / "square" / "recording"
    assert kept["recording"] == str(folder)
    said = (folder / "provenance.yaml").read_text()
    assert "a colleague" in said
    assert answer["run"] in said
    code, kept = agentgen(home, "record", "latest", "--model", "a colleague")
    assert (kept["added"], kept["kept"]) == (0, 0)
    code, refused = agentgen(home, "record", "latest", "--model", "somebody else")
    assert (code, "holds replies of 'a colleague'" in refused["error"]) == (2, True)

    code, replayed = agentgen(home, *arguments)  # no model named, no key: the recording answers
    assert code == 0
    assert [trial["candidate"] for trial in replayed["trials"]] == [trial["candidate"] for trial in answer["trials"]]
    assert replayed["trials"][0]["outcome"] == "PASSED"
    code, refused = agentgen(home, "record", "latest", "--model", "a colleague")
    assert (code, "was itself replayed" in refused["error"]) == (2, True)
