"""A ledger with runs that failed, and the records that they left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import made_records

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic, Workload
from agentgen.records.run import Plan, Run, RunStatus
from agentgen.records.trial import Check, Outcome, Trial
from agentgen.store.ledger import Ledger, open_ledger

MACHINE = made_records.cpu("a CPU")
PROBLEM = made_records.problem(
    "square", workloads=(Workload(name="main", constants={"n": 3}), Workload(name="tiny", constants={"n": 1}))
)
RUN = made_records.run(PROBLEM, models=("mailbox:/home/somebody/mailbox",), plan=Plan(rounds=1), status=RunStatus.DONE)


def kernel(source: str, language: Language = Language.CPP) -> Candidate:
    return Candidate(source=source, language=language)


def trial(of: Candidate, outcome: Outcome, *reasons: str, by: Sequence[str] = (), machine: Machine = MACHINE) -> Trial:
    return Trial(
        candidate=of.id,
        problem="square",
        arithmetic=Arithmetic.FP32,
        machine=machine,
        outcome=outcome,
        reasons=reasons,
        checks=tuple(Check(name=name, passed=False, evidence="wrong") for name in by),
    )


def ledger_of(folder: Path, *found: tuple[Candidate, Trial | None], run: Run = RUN) -> Ledger:
    """Returns an open ledger with a run, and what it made."""
    ledger = open_ledger(f"sqlite:///{folder / 'agentgen.db'}")
    ledger.create_run(run)
    request = ChatRequest(role=Role.IDEAS, problem="square", target="cpu", parent="root", system="s", prompt="p")
    ledger.add_reply(run.id, request, ChatReply(text="ideas", model="a-model"))
    for candidate, judged in found:
        ledger.add_candidate(run.id, 1, candidate)
        if judged:
            ledger.add_trial(run.id, judged)
    return ledger
