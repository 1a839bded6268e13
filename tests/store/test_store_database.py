"""The database under bad circumstances: killed writers, several at once, newer files, folders and disks that refuse."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentgen.errors import BadConfig, StoreUnavailable
from agentgen.store.ledger import open_ledger

if TYPE_CHECKING:
    from conftest import Make

RUN = "20261121-conv2d-aaaa"
NOBODY = 65534

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
    request = ChatRequest(role=Role.WRITE, problem="p", target="cpp", parent=f"{name}{i}", system="s", prompt=f"{name}{i}")
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


def test_two_openers_of_a_new_store(url: str) -> None:
    code = "import sys; from agentgen.store.ledger import open_ledger; print(len(open_ledger(sys.argv[1]).runs()))"
    openers = [subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(opener.communicate(timeout=60)[0], opener.returncode) for opener in openers] == [("0\n", 0)] * 3


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
    with pytest.raises(StoreUnavailable, match="cannot make the folder.*AGENTGEN_STORE"):
        open_ledger(f"sqlite:///{tmp_path}/results/agentgen.db")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def run_as_nobody(code: str, url: str) -> str:
    """Runs `code` without root's right to write anywhere and returns what it prints."""
    drop = f"import os\nif os.getuid() == 0: os.setuid({NOBODY})\n"
    setup = (
        "import sys, resource\nfrom agentgen.errors import StoreUnavailable\nfrom agentgen.store.ledger import open_ledger\n"
        "from agentgen.records.chat import ChatRequest\n"
    )
    done = subprocess.run([sys.executable, "-c", setup + drop + code, url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


OPEN = """
try:
    open_ledger(sys.argv[1])
except StoreUnavailable as error:
    print(error)
"""


def test_a_folder_that_cannot_be_written(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    said = run_as_nobody(OPEN, f"sqlite:///{open_folder}/agentgen.db")
    assert "agentgen.db cannot be read (unable to open database file): make its folder writable" in said
    said = run_as_nobody(OPEN, f"sqlite:///{open_folder}/results/agentgen.db")
    assert "cannot make the folder" in said


def test_a_store_that_cannot_be_written(open_folder: Path) -> None:
    file = open_folder / "agentgen.db"
    open_ledger(f"sqlite:///{file}").close()
    file.chmod(0o444)
    open_folder.chmod(0o555)
    said = run_as_nobody(OPEN, f"sqlite:///{file}")
    assert "agentgen.db cannot be" in said
    assert "writable" in said


FILL = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
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
    code = "import sys, resource\nfrom agentgen.errors import StoreUnavailable\n" + (
        "from agentgen.store.ledger import open_ledger\nfrom agentgen.records.chat import ChatRequest\n" + FILL
    )
    done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True)
    message, left = done.stdout.splitlines()
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
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.schema import CreateTable

    from agentgen.store import schema

    for table in schema.metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=postgresql.dialect()))


def test_a_password_is_not_shown() -> None:
    with pytest.raises(BadConfig) as caught:
        open_ledger("mysql://user:secret@host/db")
    assert "secret" not in str(caught.value)


assert os.name == "posix"
