"""Opening the run database: SQLite (default) or PostgreSQL, its schema's version, and its errors in one line.

SQLite runs with a write-ahead log, so that a reader never waits for a writer, and with `synchronous=FULL`: what a run
has paid for survives a power cut. A transaction that writes takes the write lock at its start; upgrading a read
transaction later fails at once when another process writes.

Not covered: SQLite on a network share (its log needs shared memory); PostgreSQL needs a driver that is not installed
with agentgen (`postgresql+psycopg://` wants psycopg); `sqlite://`, in memory, is for one thread.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from agentgen.errors import BadConfig, StoreUnavailable
from agentgen.store import schema

_BUSY_S: Final = 30.0
"""How long a writer waits for another one. A write takes milliseconds; only a stuck process holds one longer."""
_CREATION_LOCK: Final = 0x61676E74
"""Any number that other programs are unlikely to lock."""
_ELSEWHERE: Final = "set AGENTGEN_STORE to another place"
_REMEDIES: Final = (
    ("readonly", f"make its folder writable or {_ELSEWHERE}"),
    ("unable to open", f"make its folder writable or {_ELSEWHERE}"),
    ("full", f"free some space or {_ELSEWHERE}"),
    ("disk i/o", f"check the disk's space and health or {_ELSEWHERE}"),
    ("not a database", f"move that file away or {_ELSEWHERE}"),
    ("malformed", f"restore it from a copy or {_ELSEWHERE}"),
    ("locked", "another process holds it: end that one or try again"),
)


class Database:
    """An engine with the ledger's schema; hands out transactions."""

    def __init__(self, url: str) -> None:
        """Opens the database and makes file, folder and tables where they are missing.

        Raises:
            BadConfig: `url` is no URL of a database that can be used here.
            StoreUnavailable: it cannot be opened, or a newer agentgen wrote it.
        """
        parsed = _parse(url)
        self.place = str(parsed.database) if _is_file(parsed) else parsed.render_as_string(hide_password=True)
        self._engine = _engine(parsed)
        try:
            if _is_file(parsed) and not self.place.startswith("file:"):  # whoever writes SQLite's own URI says how
                self._make_folder(Path(self.place))
            self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Gives back all connections."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A transaction that sees one state of the store.

        Raises:
            StoreUnavailable: any failure of the database, in one line.
        """
        with self._told("read"), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self, *, paid: bool = False) -> Generator[Connection]:
        """A transaction that is committed when the block ends, or leaves nothing. It outlives the end of this process;
        in SQLite that of the machine only with what is `paid`, and then with all before it: waiting for the disk (5 ms)
        after each step would take most of a search's own time.

        Raises:
            StoreUnavailable: any failure of the database, in one line.
        """
        engine = self._engine.execution_options(takes_write_lock=True, paid=paid)
        with self._told("written"), engine.connect() as connection, connection.begin():
            yield connection

    def _prepare(self) -> None:
        with self.reading() as connection:
            ready = self._check_version(connection)
        if ready:
            self._add_younger_index()
        else:
            with self.writing() as connection:
                if connection.dialect.name == "postgresql":  # two may open a new store at once
                    connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
                if not self._check_version(connection):  # nobody else was faster
                    schema.metadata.create_all(connection)
                    connection.execute(insert(schema.meta).values(key="version", value=str(schema.VERSION)))

    def _add_younger_index(self) -> None:
        index = schema.trial_by_candidate
        with self.reading() as connection:
            missing = not inspect(connection).has_index(schema.trial.name, str(index.name))
        if missing:
            with suppress(StoreUnavailable), self.writing() as connection:  # it is for speed: a store may be read-only
                index.create(connection, checkfirst=True)

    def _check_version(self, connection: Connection) -> bool:
        """Returns whether the tables are there.

        Raises:
            StoreUnavailable: they are of a newer version.
        """
        if not inspect(connection).has_table(schema.meta.name):
            return False
        stored = connection.scalar(select(schema.meta.c.value).where(schema.meta.c.key == "version"))
        if stored is None or not stored.isdigit():
            raise StoreUnavailable(f"{self.place} is no store of agentgen: {_ELSEWHERE}")
        if int(stored) > schema.VERSION:
            raise StoreUnavailable(
                f"{self.place} was written by a newer agentgen (store version {stored}, this one knows "
                f"{schema.VERSION}): upgrade agentgen or {_ELSEWHERE}"
            )
        return True

    def _make_folder(self, file: Path) -> None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"cannot make the folder of the run store {file}: {error}; {_ELSEWHERE}") from error

    @contextmanager
    def _told(self, what: str) -> Generator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            reason = str(error.orig) if isinstance(error, DBAPIError) and error.orig else str(error)
            reason = " ".join(reason.split())[:300]
            remedy = next((remedy for sign, remedy in _REMEDIES if sign in reason.lower()), _ELSEWHERE)
            raise StoreUnavailable(f"the run store {self.place} cannot be {what} ({reason}): {remedy}") from error


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        raise BadConfig("AGENTGEN_STORE is no URL; for a file write sqlite:///path/to/agentgen.db") from error


def _is_file(url: URL) -> bool:
    return url.get_backend_name() == "sqlite" and bool(url.database) and url.database != ":memory:"


def _engine(url: URL) -> Engine:
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise BadConfig(f"the store {shown} is neither SQLite nor PostgreSQL")
    try:
        engine = create_engine(url)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise BadConfig(f"the store {shown} needs a database driver that is not installed ({error})") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # The driver's own transactions start too late and end before DDL; ours start in `_begin_sqlite`.
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout={_BUSY_S * 1000:.0f}")
    connection.execute("PRAGMA foreign_keys=ON")
    _use_write_ahead_log(connection)


def _use_write_ahead_log(connection: Any) -> None:
    # The switch needs the file for itself and does not wait by itself: two processes may open a new store at once.
    deadline_s = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline_s:
                raise
        time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    write = options.get("takes_write_lock", False)
    # With a write-ahead log NORMAL never harms the store; a power cut may take the last transactions.
    connection.exec_driver_sql(f"PRAGMA synchronous={'FULL' if options.get('paid') else 'NORMAL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
