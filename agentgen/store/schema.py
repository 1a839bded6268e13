"""The tables of the ledger, for SQLite and PostgreSQL.

Each row holds a whole record as JSON (`record`), beside the columns that one wants to query. Long texts (sources,
prompts, replies) are in `blob` by their sha256, once each, and left out of `record`. Rows are only ever added; what
changes is a run's `status`, `target` and caps, and an exchange's `reply` and `ended`.

`VERSION` counts incompatible changes. A store of a newer version is refused, never half read.

Not covered: PostgreSQL takes no NUL in a text; SQLite does.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

VERSION: Final = 1

metadata = MetaData()


class JsonText(TypeDecorator[Any]):
    """JSON as text. Unlike the JSON types of the databases it takes NaN and infinity, which an error may be."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> str | None:
        """Returns what is stored."""
        return None if value is None else json.dumps(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any | None:
        """Returns what was stored."""
        return None if value is None else json.loads(value)


meta = Table(
    "meta",
    metadata,
    Column("key", String(32), primary_key=True),
    Column("value", String(255), nullable=False),
)

blob = Table(
    "blob",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("text", Text, nullable=False),
)


def _blob_column(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, String(64), ForeignKey("blob.sha256"), nullable=nullable)


def _run_columns() -> tuple[Column[str], Column[str], Column[int]]:
    """What every row of a run has: its run, its id there, and the order in which it came."""
    return (
        Column("run_id", String(64), ForeignKey("run.id"), primary_key=True),
        Column("id", String(64), primary_key=True),
        Column("seq", Integer, nullable=False),
    )


run = Table(
    "run",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("problem", String(255), nullable=False),
    Column("arithmetic", String(16), nullable=False),
    Column("device", String(16), nullable=False),
    Column("machine_id", String(64)),
    Column("status", String(16), nullable=False),
    Column("target", JsonText),
    Column("record", JsonText, nullable=False),
)
"""`record` is the run as it was created, with the caps of now; `status` and `target` are as they are now."""

idea = Table(
    "idea",
    metadata,
    *_run_columns(),
    Column("round", Integer, nullable=False),
    Column("parent", String(64), nullable=False),
    Column("category", String(64), nullable=False),
    Column("title", String(255), nullable=False),
    Column("record", JsonText, nullable=False),
    UniqueConstraint("run_id", "seq"),
)

candidate = Table(
    "candidate",
    metadata,
    *_run_columns(),
    Column("round", Integer, nullable=False),
    Column("idea", String(64)),
    Column("parent", String(64)),
    Column("language", String(16), nullable=False),
    Column("repair", Integer, nullable=False),
    _blob_column("source"),
    Column("record", JsonText, nullable=False),
    UniqueConstraint("run_id", "seq"),
)

trial = Table(
    "trial",
    metadata,
    *_run_columns(),
    Column("candidate", String(64), nullable=False),
    Column("problem", String(255), nullable=False),
    Column("arithmetic", String(16), nullable=False),
    Column("machine_id", String(64), nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("median_us", Float),
    Column("speedup", Float),
    Column("faster", Boolean),
    Column("roofline_fraction", Float),
    Column("record", JsonText, nullable=False),
    UniqueConstraint("run_id", "seq"),
    ForeignKeyConstraint(["run_id", "candidate"], ["candidate.run_id", "candidate.id"]),
    Index("trial_by_place", "problem", "arithmetic", "machine_id", "outcome"),
)
trial_by_candidate = Index("trial_by_candidate", trial.c.run_id, trial.c.candidate)
"""Younger than some stores: `database` adds it to those."""
"""`id` is the content hash of the whole trial. `speedup` and `faster` are against the fastest baseline."""

exchange = Table(
    "exchange",
    metadata,
    *_run_columns(),
    Column("role", String(16), nullable=False),
    Column("target", String(64), nullable=False),
    Column("parent", String(64), nullable=False),
    Column("attempt", Integer, nullable=False),
    _blob_column("system"),
    _blob_column("prompt"),
    Column("record", JsonText, nullable=False),
    _blob_column("reply_text", nullable=True),
    _blob_column("reply_reasoning", nullable=True),
    Column("reply", JsonText),
    Column("model", String(255)),
    Column("input_tokens", Integer),
    Column("output_tokens", Integer),
    Column("cost_usd", Float),
    Column("ended", Text),
    UniqueConstraint("run_id", "seq"),
)
"""`record` is the request, `reply` the reply without its texts, `ended` why no usable reply will ever come."""

OF_RUNS: Final = (exchange, idea, candidate, trial)
"""The tables of what runs hold; one whose rows refer to another's comes after it."""
