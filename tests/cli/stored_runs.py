"""Runs as they are stored: one that waits for its mailbox, one whose kernels are there."""

from __future__ import annotations

from pathlib import Path

import made_records
from written_requests import read_request

from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.problem import Problem
from agentgen.records.run import Plan, Run
from agentgen.store.ledger import Ledger, open_ledger


def stored_run(ledger: Ledger, device: str = "cpu", rounds: int = 1) -> Run:
    """Stores a run of one idea a round whose device a judge has looked at."""
    run = made_records.run(
        id="20261121-120000-abcd",
        device=device,
        plan=Plan(rounds=rounds, ideas=1, repairs=0),
        target=made_records.target(),
    )
    ledger.create_run(run)
    return run


def written_run(home: Path, of: Problem, first: Candidate, *others: Candidate) -> Run:
    """Stores a run in the results of a folder: a model wrote its first candidate, and nobody the others."""
    run = made_records.run(of, id="20261122-120000-abcd", models=("mailbox",))
    asked = ChatRequest(role=Role.REFINE, problem=of.name, target="cpp", parent="root", system="s", prompt="p")
    with open_ledger(f"sqlite:///{home / 'results' / 'agentgen.db'}") as ledger:
        ledger.create_run(run)
        ledger.add_reply(run.id, asked, ChatReply(text=f"```python\n{first.source}```\n", model="m"))
        for candidate in (first, *others):
            ledger.add_candidate(run.id, 1, candidate)
    return run


def answer_the_request(mailbox: Path, role: Role, text: str) -> None:
    """Writes the answer to the one request of a role."""
    (request,) = (path for path in mailbox.glob("*.request.md") if read_request(path).role is role)
    request.with_name(request.name.replace(".request.", ".reply.")).write_text(text)
