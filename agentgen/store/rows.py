"""Between records and rows of the ledger, and the records that the ledger returns beside those of the domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Row

from agentgen.records.base import Record
from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, ChatRequest
from agentgen.records.idea import Idea
from agentgen.records.machine import Target
from agentgen.records.run import Caps, Run


class IdeaRow(Record):
    """An idea and the round of the run that it came in."""

    round: int
    idea: Idea


class CandidateRow(Record):
    """A candidate and the round of the run that it came in."""

    round: int
    candidate: Candidate


class Exchange(Record):
    """A request with what became of it."""

    request: ChatRequest
    reply: ChatReply | None = None
    ended: str | None = None
    """Why it will never get a usable answer."""


class Spent(Record):
    """What the answered requests of a run have cost."""

    requests: int
    input_tokens: int | None
    """None, as the others: of some reply it is not known."""
    output_tokens: int | None
    cost_usd: float | None
    cached_tokens: int | None = None
    """Of the input, those that the server had read before."""
    reasoning_tokens: int | None = None
    """Of the output, those of reasoning."""

    @property
    def tokens(self) -> int | None:
        """Input and output."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


def as_json(record: Record, *left_out: str) -> dict[str, Any]:
    """Returns what a JSON column holds of `record`."""
    return record.model_dump(mode="json", exclude=set(left_out))


def run_json(run: Run) -> dict[str, Any]:
    """Returns what the column `record` holds of a run; without caps it is as before there were any."""
    return as_json(run, "status", "target", *(("caps",) if run.caps == Caps() else ()))


def target_values(target: Target | None) -> dict[str, Any]:
    """Returns the columns of a run that hold its target."""
    if target is None:
        return {"target": None, "machine_id": None}
    return {"target": as_json(target), "machine_id": target.machine.id}


def to_run(row: Row[Any]) -> Run:
    """Returns the run of a row of `run`."""
    return Run.model_validate({**row.record, "status": row.status, "target": row.target})


def to_candidate_row(row: Row[Any], texts: Mapping[str, str]) -> CandidateRow:
    """Returns the candidate of a row of `candidate`; `texts` by sha256."""
    candidate = Candidate.model_validate({**row.record, "source": texts[row.source]})
    return CandidateRow(round=row.round, candidate=candidate)


def to_exchange(row: Row[Any], texts: Mapping[str, str]) -> Exchange:
    """Returns the exchange of a row of `exchange`; `texts` by sha256."""
    request = {**row.record, "system": texts[row.system], "prompt": texts[row.prompt]}
    reply = None
    if row.reply is not None:
        reply = {**row.reply, "text": texts[row.reply_text], "reasoning": texts[row.reply_reasoning]}
    return Exchange.model_validate({"request": request, "reply": reply, "ended": row.ended})


def to_spent(rows: Iterable[Row[Any]]) -> Spent:
    """Returns the sums over the answered ones of some rows of `exchange`."""
    answered = [row for row in rows if row.reply is not None]
    sums: dict[str, object] = {}
    for name in Spent.model_fields.keys() - {"requests"}:
        # Three are columns too; the reply has all, unless it is of before there was a field.
        values = [row.reply.get(name) for row in answered]
        sums[name] = None if None in values else sum(values)
    return Spent.model_validate({"requests": len(answered), **sums})
