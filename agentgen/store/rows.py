"""Between records and rows of the ledger, and the records that the ledger returns beside those of the domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Row

from agentgen.records.base import Record
from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.idea import Idea
from agentgen.records.machine import Target
from agentgen.records.run import Run
from agentgen.records.score import Score
from agentgen.records.trial import Outcome, Speedup


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


class Letter(Record):
    """An exchange without its texts."""

    id: str
    first_id: str
    """Of its first attempt."""
    role: Role
    parent: str
    nth: int
    attempt: int
    round: int
    request_bytes: int
    """System and prompt, in UTF-8."""
    reply_bytes: int
    """Text and reasoning."""
    answered: bool
    input_tokens: int | None
    """None, as the others: not known."""
    output_tokens: int | None
    cost_usd: float | None
    seconds: float | None


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
    """Returns what the column `record` holds of a run."""
    return as_json(run, "status", "target")


def target_values(target: Target | None) -> dict[str, Any]:
    """Returns the columns of a run that hold its target."""
    if target is None:
        return {"target": None, "machine_id": None}
    return {"target": as_json(target), "machine_id": target.machine.id}


def to_run(row: Row[Any]) -> Run:
    """Returns the run of a row of `run`."""
    # A run from before ideas were written anew keeps its course: that would have come first.
    plan = {"rewrites": 0, **row.record["plan"]}
    return Run.model_validate({**row.record, "plan": plan, "status": row.status, "target": row.target})


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


def to_letter(row: Row[Any]) -> Letter:
    """Returns the letter of a row of `statements.letters`."""
    first = ChatRequest.model_validate({**row.record, "system": "", "prompt": ""}).first_id if row.attempt else row.id
    return Letter(
        id=row.id,
        first_id=first,
        role=Role(row.role),
        parent=row.parent,
        nth=row.record.get("nth", 0),
        attempt=row.attempt,
        round=row.record.get("round", 0),
        request_bytes=row.system_bytes + row.prompt_bytes,
        reply_bytes=row.reply_text_bytes + row.reply_reasoning_bytes,
        answered=row.reply is not None,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_usd=row.cost_usd,
        seconds=row.reply.get("seconds") if row.reply else None,
    )


def letter_of(request: ChatRequest, reply: ChatReply) -> Letter:
    """Returns the letter of an exchange that is not read from the store."""
    return Letter(
        id=request.id,
        first_id=request.first_id,
        role=request.role,
        parent=request.parent,
        nth=request.nth,
        attempt=request.attempt,
        round=request.round,
        request_bytes=text_bytes(request.system, request.prompt),
        reply_bytes=text_bytes(reply.text, reply.reasoning),
        answered=True,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cost_usd=reply.cost_usd,
        seconds=reply.seconds,
    )


def text_bytes(*texts: str) -> int:
    """Returns the size of texts in UTF-8."""
    return sum(len(text.encode()) for text in texts)


def to_score(row: Row[Any]) -> Score:
    """Returns the score of a row of `trial`, without reading the rest of the trial."""
    trial = row.record
    speedups, reasons = trial["speedups"], trial["reasons"]
    return Score(
        candidate=row.candidate,
        outcome=Outcome(row.outcome),
        reason=reasons[0] if reasons else None,
        median_us=row.median_us,
        speedup=Speedup.model_validate(speedups[0]) if speedups and row.median_us is not None else None,
        roofline_fraction=row.roofline_fraction,
    )


def to_spent(rows: Iterable[Row[Any]]) -> Spent:
    """Returns the sums over the answered ones of some rows of `exchange`."""
    answered = [row for row in rows if row.reply is not None]
    sums: dict[str, object] = {}
    for name in Spent.model_fields.keys() - {"requests"}:
        # Three are columns too; the reply has all, unless it is of before there was a field.
        values = [row.reply.get(name) for row in answered]
        sums[name] = None if None in values else sum(values)
    return Spent.model_validate({"requests": len(answered), **sums})
