"""The exchanges with models, as the ledger keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Table, select

from agentgen.errors import BadInput
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.store import schema
from agentgen.store.database import Database
from agentgen.store.rows import Exchange, Letter, Spent, as_json, to_exchange, to_letter, to_spent
from agentgen.store.statements import add_request, fill, letters, put_text, rows, texts


class Exchanges:
    """The part of the ledger that holds what was asked and answered."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_request(self, run_id: str, request: ChatRequest) -> bool:
        """Adds a request, before it is sent."""
        with self._database.writing() as connection:
            return add_request(connection, run_id, request)

    def add_reply(self, run_id: str, request: ChatRequest, reply: ChatReply) -> bool:
        """Adds a reply, and its request where that is missing. The first reply stays: it is what was acted on."""
        here = schema.exchange.c.run_id == run_id, schema.exchange.c.id == request.id
        with self._database.writing(paid=True) as connection:
            if connection.scalar(select(schema.exchange.c.seq).where(*here)) is None:
                add_request(connection, run_id, request)
            values = {
                "reply": as_json(reply, "text", "reasoning"),
                "reply_text": put_text(connection, reply.text),
                "reply_reasoning": put_text(connection, reply.reasoning),
                "model": reply.model,
                "input_tokens": reply.input_tokens,
                "output_tokens": reply.output_tokens,
                "cost_usd": reply.cost_usd,
            }
            return fill(connection, run_id, request.id, values)

    def reply(self, run_id: str, request_id: str) -> ChatReply | None:
        """Returns the reply to a request; None where there is none yet."""
        found = self._exchanges(run_id, schema.exchange.c.id == request_id)
        return found[0].reply if found else None

    def answered(self, run_id: str) -> frozenset[str]:
        """Returns the ids of the requests that have a reply."""
        here = schema.exchange.c.run_id == run_id, schema.exchange.c.reply.is_not(None)
        with self._database.reading() as connection:
            return frozenset(connection.scalars(select(schema.exchange.c.id).where(*here)))

    def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """Returns the requests with their replies, in the order they were asked."""
        return self._exchanges(run_id)

    def end_branch(self, run_id: str, request_id: str, reason: str) -> bool:
        """Notes that a request will never get a usable answer. The first reason stays.

        Raises:
            BadInput: the run has no such request.
        """
        here = schema.exchange.c.run_id == run_id, schema.exchange.c.id == request_id
        with self._database.writing() as connection:
            if connection.scalar(select(schema.exchange.c.id).where(*here)) is None:
                raise BadInput(f"run {run_id} has no request {request_id}")
            return fill(connection, run_id, request_id, {"ended": reason})

    def ended(self, run_id: str) -> Mapping[str, str]:
        """Returns the reasons of `end_branch` by request id."""
        ends = select(schema.exchange.c.id, schema.exchange.c.ended)
        here = schema.exchange.c.run_id == run_id, schema.exchange.c.ended.is_not(None)
        with self._database.reading() as connection:
            return {row.id: row.ended for row in connection.execute(ends.where(*here))}

    def letters(self, run_id: str, *roles: Role) -> Iterator[Letter]:
        """Yields the exchanges without their texts, in the order they were asked: of some roles, or of all."""
        with self._database.reading() as connection:
            for row in letters(connection, run_id, roles):
                yield to_letter(row)

    def spent(self, run_id: str) -> Spent:
        """Returns what the answered requests have cost so far."""
        return to_spent(self._rows(schema.exchange, run_id))

    def _exchanges(self, run_id: str, *where: ColumnElement[bool]) -> tuple[Exchange, ...]:
        with self._database.reading() as connection:
            found = rows(connection, schema.exchange, run_id, *where)
            said = texts(connection, schema.exchange, run_id, *where)
        return tuple(to_exchange(row, said) for row in found)

    def _rows(self, table: Table, run_id: str) -> Sequence[Row[Any]]:
        with self._database.reading() as connection:
            return rows(connection, table, run_id)
