"""The statements that the ledger's methods are made of. Each runs in the caller's transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Label,
    LargeBinary,
    Row,
    Table,
    bindparam,
    cast,
    func,
    select,
    union,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from agentgen.errors import BadInput
from agentgen.records.chat import ChatRequest, Role
from agentgen.store import schema
from agentgen.store.rows import as_json

_SHOWN: Final = 5
_AT_ONCE: Final = 100
"""Rows that are read into memory at once where a run may have ten thousand."""
_EXCHANGE_TEXTS: Final = ("system", "prompt", "reply_text", "reply_reasoning")
_LOCKED_RUN: Final = select(schema.run.c.id).where(schema.run.c.id == bindparam("of_run")).with_for_update()
"""On PostgreSQL the lock keeps two writers of a run from taking the same `seq`; SQLite has one writer anyway."""
_TEXT_COLUMNS: Final = {schema.candidate.name: ("source",), schema.exchange.name: _EXCHANGE_TEXTS}
_REPLY: Final = ("reply", "reply_text", "reply_reasoning", "model", "input_tokens", "output_tokens", "cost_usd")
_FILLED_LATER: Final = {schema.exchange.name: (_REPLY, ("ended",))}
"""Columns that a row gets after it was added, all of a group at once; the first of a group says whether it did."""


def run_row(connection: Connection, run_id: str) -> Row[Any] | None:
    """Returns a row of `run`; None where there is none."""
    return connection.execute(select(schema.run).where(schema.run.c.id == run_id)).one_or_none()


def find_run(connection: Connection, reference: str) -> Row[Any]:
    """Returns the run that is meant by `latest`, an id or the beginning of one id only.

    Raises:
        BadInput: none or several are meant; names the latest few.
    """
    ids = list(connection.scalars(select(schema.run.c.id).order_by(schema.run.c.seq.desc())))
    if not ids:
        raise BadInput("there is no run yet: start one with `agentgen solve PROBLEM`")
    if reference == "latest":
        meant = ids[:1]
    elif reference in ids:
        meant = [reference]
    else:
        meant = [run_id for run_id in ids if reference and run_id.startswith(reference)]
    if len(meant) != 1:
        what = f"{len(meant)} runs start with" if meant else "no run is called"
        shown = ", ".join((meant or ids)[:_SHOWN])
        raise BadInput(f"{what} {reference!r}; the latest: {shown}")
    row = run_row(connection, meant[0])
    if row is None:
        raise AssertionError("rows of runs are never deleted")
    return row


def rows(connection: Connection, table: Table, run_id: str, *where: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """Returns a run's rows of a table in the order they came.

    Raises:
        BadInput: there is no such run.
    """
    if run_row(connection, run_id) is None:
        raise BadInput(f"the store has no run {run_id}")
    return connection.execute(select(table).where(table.c.run_id == run_id, *where).order_by(table.c.seq)).all()


def stream(connection: Connection, table: Table, run_id: str) -> Iterable[Row[Any]]:
    """Returns a run's rows of a table in the order they came, a few at a time."""
    query = select(table).where(table.c.run_id == run_id).order_by(table.c.seq)
    return connection.execution_options(yield_per=_AT_ONCE).execute(query)


def texts(connection: Connection, table: Table, run_id: str, *where: ColumnElement[bool]) -> dict[str, str]:
    """Returns the texts that a run's rows of a table refer to, by sha256."""
    named = [select(table.c[name]).where(table.c.run_id == run_id, *where) for name in _TEXT_COLUMNS[table.name]]
    query = select(schema.blob.c.sha256, schema.blob.c.text).where(schema.blob.c.sha256.in_(union(*named)))
    return {row.sha256: row.text for row in connection.execute(query)}


def letters(connection: Connection, run_id: str, roles: Collection[Role]) -> Iterable[Row[Any]]:
    """Returns a run's rows of `exchange` with the sizes of their texts, a few at a time."""
    table, sizes = schema.exchange, list[Label[int]]()
    for name in _EXCHANGE_TEXTS:
        text = schema.blob.alias()
        size = select(_bytes(connection, text.c.text)).where(text.c.sha256 == table.c[name]).scalar_subquery()
        sizes.append(func.coalesce(size, 0).label(f"{name}_bytes"))
    query = select(table, *sizes).where(table.c.run_id == run_id).order_by(table.c.seq)
    if roles:
        query = query.where(table.c.role.in_([role.value for role in roles]))
    return connection.execution_options(yield_per=_AT_ONCE).execute(query)


def add(connection: Connection, table: Table, run_id: str, row_id: str, values: dict[str, Any]) -> bool:
    """Adds a row of a run at the end; returns False, and changes nothing, where it is there already.

    Raises:
        BadInput: there is no such run.
    """
    _lock_run(connection, run_id)
    return _insert_missing(connection, table, {"run_id": run_id, "id": row_id, "of_run": run_id, **values})


def add_request(connection: Connection, run_id: str, request: ChatRequest) -> bool:
    """Adds a row of `exchange` that has no reply yet, unless it is there."""
    values = {
        "role": request.role.value,
        "target": request.target,
        "parent": request.parent,
        "attempt": request.attempt,
        "system": put_text(connection, request.system),
        "prompt": put_text(connection, request.prompt),
        "record": as_json(request, "system", "prompt"),
    }
    return add(connection, schema.exchange, run_id, request.id, values)


def fill(connection: Connection, run_id: str, request_id: str, values: dict[str, Any]) -> bool:
    """Sets columns of a row of `exchange`, unless the first of them is set; returns whether it did."""
    here = schema.exchange.c.run_id == run_id, schema.exchange.c.id == request_id
    empty = schema.exchange.c[next(iter(values))].is_(None)
    return connection.execute(update(schema.exchange).where(*here, empty).values(values)).rowcount == 1


def lacking(source: Connection, target: Connection, table: Table, run_id: str) -> list[str]:
    """Returns the ids of a run's rows that another store has no row for or less of, in the order they came."""
    held = _filled(target, table, run_id)
    return [
        row_id
        for row_id, filled in _filled(source, table, run_id).items()
        if row_id not in held or any(more and not so_far for more, so_far in zip(filled, held[row_id], strict=True))
    ]


def copy_rows(source: Connection, target: Connection, table: Table, run_id: str, ids: Sequence[str]) -> None:
    """Adds some rows of a run from another store, and what rows that are there lack. Ids stay: a record of an older
    version would hash to another one. Texts are hashed anew, for all runs share them.

    Raises:
        BadInput: there is no such run in one of the stores.
    """
    _lock_run(target, run_id)
    these = table.c.id.in_(ids)
    said = texts(source, table, run_id, these) if table.name in _TEXT_COLUMNS else {}
    for _, text in sorted(said.items()):  # in one order, or two writers could wait for each other
        put_text(target, text)
    for row in rows(source, table, run_id, these):
        values = {name: value for name, value in zip(table.c.keys(), row, strict=True) if name != "seq"}
        if not _insert_missing(target, table, {"of_run": run_id, **values}):
            for group in _FILLED_LATER.get(table.name, ()):
                if values[group[0]] is not None:
                    fill(target, run_id, row.id, {name: values[name] for name in group})


def put_text(connection: Connection, text: str) -> str:
    """Keeps a text and returns its sha256."""
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    _insert_missing(connection, schema.blob, {"sha256": sha256, "text": text})
    return sha256


def _filled(connection: Connection, table: Table, run_id: str) -> dict[str, tuple[bool, ...]]:
    """Returns the ids of a run's rows in the order they came, each with which groups of `_FILLED_LATER` it has."""
    has = [table.c[group[0]].is_not(None) for group in _FILLED_LATER.get(table.name, ())]
    query = select(table.c.id, *has).where(table.c.run_id == run_id).order_by(table.c.seq)
    return {row_id: tuple(map(bool, filled)) for row_id, *filled in connection.execute(query)}


def _insert_missing(connection: Connection, table: Table, values: dict[str, Any]) -> bool:
    statement = _insertion(table, connection.dialect.name)
    return connection.execute(statement, values).first() is not None  # psycopg has no row count here


@cache
def _insertion(table: Table, dialect: str) -> Insert:
    """Made once: to make and compile it took as long as to run it. A row of a run takes the next `seq`."""
    keys = list(table.primary_key.columns)
    statement = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(table)
    if "seq" in table.c:
        last = select(func.coalesce(func.max(table.c.seq), 0)).where(table.c.run_id == bindparam("of_run"))
        statement = statement.values(seq=last.scalar_subquery() + 1)
    return statement.on_conflict_do_nothing(index_elements=keys).returning(*keys)


def _bytes(connection: Connection, text: ColumnElement[str]) -> ColumnElement[int]:
    if connection.dialect.name == "postgresql":
        return func.octet_length(text)
    return func.length(cast(text, LargeBinary))  # of a text SQLite counts the characters


def _lock_run(connection: Connection, run_id: str) -> None:
    if connection.scalar(_LOCKED_RUN, {"of_run": run_id}) is None:
        raise BadInput(f"the store has no run {run_id}")
