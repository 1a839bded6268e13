"""The database under bad circumstances: killed writers, several at once, newer files, folders and disks that refuse."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from agentgen.errors import BadConfig, StoreUnavailable
from agentgen.store import schema
from agentgen.store.database import Database
from agentgen.store.ledger import open_ledger

if TYPE_CHECKING:
    from conftest import Make

RUN = "20261121-conv2d-aaaa"

# Adds candidates and exchanges to a run for as long as it lives, or as many as it is told; says so after each one.
WRITER = """
import itertools, sys
from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.store.ledger import open_ledger
url, run, name, count = sys.argv[1:]
ledger = open_ledger(url)
for i in itertools.islice(itertools.count(), int(count) or None):
    candidate = Candidate(source=f"# {name} {i}\\n" + "x" * 5000, language="cpp")
    me = f"{name}{i}"
    request = ChatRequest(role=Role.WRITE, problem="p", target="cpp", parent=me, system="s", prompt=me)
    assert ledger.add_candidate(run, i, candidate)
    assert ledger.add_reply(run, request, ChatReply(text=candidate.source, model="m"))
    print(i, flush=True)
"""


def start_writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, url, RUN, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_writer_leaves_whole_rows(url: str, make: Make) -> None:
    with open_ledger(url) as ledger:
        ledger.create_run(make.run(RUN))
    with start_writer(url, "w", 0) as writer:
        assert writer.stdout is not None
        said = [next(writer.stdout) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        said.extend(writer.stdout)
    finished = int(said[-1]) + 1
    with open_ledger(url) as ledger:
        candidates, exchanges = ledger.candidates(RUN), ledger.exchanges(RUN)
        assert finished <= len(exchanges) <= len(candidates) <= finished + 1
        assert [row.round for row in candidates] == list(range(len(candidates)))
        assert all(exchange.reply is not None for exchange in exchanges)
        assert ledger.add_idea(RUN, 1, make.idea())
    with sqlite3.connect(url.removeprefix("sqlite:///")) as plain:
        assert plain.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert plain.execute("pragma foreign_key_check").fetchall() == []


def test_two_writers_at_once(url: str, make: Make) -> None:
    with open_ledger(url) as ledger:
        ledger.create_run(make.run(RUN))
    with start_writer(url, "a", 40) as one, start_writer(url, "b", 40) as other:
        for writer in (one, other):
            writer.communicate(timeout=60)
            assert writer.returncode == 0
    with open_ledger(url) as ledger:
        assert len(ledger.candidates(RUN)) == len(ledger.exchanges(RUN)) == 80


def test_opening_a_new_store_waits_for_another_opener(tmp_path: Path) -> None:
    # SQLite answers "database is locked" at once when the switch to the write-ahead log meets this lock.
    other = sqlite3.connect(tmp_path / "agentgen.db", isolation_level=None, check_same_thread=False)
    other.execute("begin immediate")
    release = threading.Timer(0.2, other.execute, ("rollback",))
    release.start()
    with open_ledger(f"sqlite:///{tmp_path}/agentgen.db") as ledger:
        assert ledger.runs() == ()
    release.join()
    other.close()


def test_a_transaction_that_writes_has_the_lock_from_the_start(tmp_path: Path) -> None:
    # One that takes it later fails, without waiting, where another process wrote after its first read.
    database = Database(f"sqlite:///{tmp_path}/agentgen.db")
    other = sqlite3.connect(tmp_path / "agentgen.db", isolation_level=None, timeout=0)
    with database.writing(), pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("begin immediate")
    with database.reading():
        other.execute("begin immediate")
    other.close()
    database.close()


def test_a_reader_does_not_wait_for_a_writer(url: str, make: Make) -> None:
    with open_ledger(url) as ledger:
        ledger.create_run(make.run(RUN))
        blocker = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        blocker.execute("begin immediate")
        assert ledger.run("latest").id == RUN
        blocker.execute("rollback")
        blocker.close()


def test_a_newer_store_is_refused(url: str) -> None:
    open_ledger(url).close()
    with sqlite3.connect(url.removeprefix("sqlite:///")) as plain:
        plain.execute("update meta set value = '2' where key = 'version'")
    with pytest.raises(StoreUnavailable, match=r"newer agentgen \(store version 2.*upgrade agentgen"):
        open_ledger(url)


def test_a_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as plain:
        plain.execute("create table meta (key text, value text)")
    with pytest.raises(StoreUnavailable, match="no store of agentgen"):
        open_ledger(f"sqlite:///{file}")
    with sqlite3.connect(file) as plain:
        assert plain.execute("select name from sqlite_master").fetchall() == [("meta",)]


def test_no_database_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("This is a letter, not a database. " * 100)
    with pytest.raises(StoreUnavailable, match=r"a\.db cannot be read \(file is not a database\): move") as caught:
        open_ledger(f"sqlite:///{tmp_path}/a.db")
    assert "\n" not in str(caught.value)


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(StoreUnavailable, match=r"cannot make the folder.*AGENTGEN_STORE"):
        open_ledger(f"sqlite:///{tmp_path}/results/agentgen.db")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


SETUP = """
import os, resource, sys
from agentgen.errors import StoreUnavailable
from agentgen.records.chat import ChatRequest
from agentgen.store.ledger import open_ledger
"""


def run(code: str, url: str) -> str:
    """Runs `code` in a process of its own and returns what it prints."""
    done = subprocess.run([sys.executable, "-c", SETUP + code, url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Root may write anywhere; nobody may not. All that is imported late is imported before: it may lie in root's home.
OPEN = """
open_ledger("sqlite://").close()
if os.getuid() == 0:
    os.setuid(65534)
try:
    open_ledger(sys.argv[1])
except StoreUnavailable as error:
    print(error)
"""


def test_a_folder_that_cannot_be_written(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    said = run(OPEN, f"sqlite:///{open_folder}/agentgen.db")
    assert "agentgen.db cannot be read (unable to open database file): make its folder writable" in said
    said = run(OPEN, f"sqlite:///{open_folder}/results/agentgen.db")
    assert "cannot make the folder" in said


def test_a_store_that_cannot_be_written(open_folder: Path) -> None:
    file = open_folder / "agentgen.db"
    open_ledger(f"sqlite:///{file}").close()
    file.chmod(0o444)
    open_folder.chmod(0o555)
    said = run(OPEN, f"sqlite:///{file}")
    assert "agentgen.db cannot be" in said
    assert "writable" in said


# Python ignores the signal that comes with the limit, so that writing fails as on a full disk.
FILL = """
ledger = open_ledger(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
request = ChatRequest(role="write", problem="p", target="cpp", parent="p", system="s", prompt="x" * 1_000_000)
try:
    ledger.add_request(ledger.run("latest").id, request)
except StoreUnavailable as error:
    print(error)
print(ledger.exchanges(ledger.run("latest").id))
"""


def test_a_disk_that_is_full(url: str, make: Make) -> None:
    with open_ledger(url) as ledger:
        ledger.create_run(make.run(RUN))
    message, left = run(FILL, url).splitlines()
    assert "agentgen.db cannot be written (" in message
    assert "AGENTGEN_STORE" in message
    assert left == "()"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("results/agentgen.db", r"no URL; for a file write sqlite:///"),
        ("mysql://host/db", "neither SQLite nor PostgreSQL"),
        ("sqlite+nodriver:///x.db", "driver that is not installed"),
    ],
)
def test_urls_of_no_use(url: str, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        open_ledger(url)


def test_a_store_in_memory() -> None:
    with open_ledger("sqlite://") as ledger:
        assert ledger.runs() == ()


def test_the_schema_is_also_postgresqls() -> None:
    for table in schema.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=postgresql.dialect()))


def test_a_password_is_not_shown() -> None:
    with pytest.raises(BadConfig) as caught:
        open_ledger("mysql://user:secret@host/db")
    assert "secret" not in str(caught.value)
