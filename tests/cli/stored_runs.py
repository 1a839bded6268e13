"""A run that waits for its mailbox, as it is stored, of which a judge has looked at the device."""

from __future__ import annotations

from pathlib import Path

import made_records

from agentgen.models.exchange import read_request
from agentgen.records.chat import Role
from agentgen.records.run import Plan, Run
from agentgen.store.ledger import Ledger


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


def answer_the_request(mailbox: Path, role: Role, text: str) -> None:
    """Writes the answer to the one request of a role."""
    (request,) = (path for path in mailbox.glob("*.request.md") if read_request(path).role is role)
    request.with_name(request.name.replace(".request.", ".reply.")).write_text(text)
