"""The journal of an evaluation: every case that is finished, on disk before the next begins, and the run of every
search that has begun. One that was killed goes on where it was.

Lines of JSON. A case is known by its name, by which go at it this was, and by what it consists of, also the texts of
its problem and its kernel: what has changed since is done again.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from agentgen.errors import BadInput, StoreUnavailable
from agentgen.records.base import Record, content_hash
from agentgen.records.machine import Machine
from agentgen.scoring.cases import Inputs, Subject
from agentgen.scoring.verdicts import Verdict


class Found(Record):
    """What became of a case, and where."""

    verdict: Verdict
    machine: Machine | None
    """None: a problem of which no kernel was evaluated."""
    seconds: float


class Begun(Record):
    """A search that has begun."""

    run: str
    seconds: float = 0.0
    """That it took up to its latest trial, over all processes that worked on it."""


@dataclass(frozen=True, eq=False)
class Visitor:
    """One go at a case."""

    name: str
    inputs: Inputs
    key: str
    nth: int = 1
    """Which go at it."""


class Journal:
    """What is finished, and what has begun. Written by any thread of the one process that may have it."""

    def __init__(self, path: Path, folder: Path) -> None:
        """Reads what a former process left.

        Args:
            path: of the file; made when there is something to keep.
            folder: that the cases' paths are relative to.
        """
        self.path = path
        self._folder = folder
        self._lock = threading.Lock()
        self._claim: IO[bytes] | None = None
        self._found: dict[str, Found] = {}
        self._begun: dict[str, Begun] = {}
        self._read()

    def claim(self) -> None:
        """Keeps every other process from this journal, until `end` or the end of this one.

        Raises:
            BadInput: another has it.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._claim = self.path.open("ab")
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"another process is at this very evaluation, and has {self.path}: wait for it") from error
        except OSError as error:
            raise StoreUnavailable(f"the journal {self.path} cannot be written: {error.strerror}") from error
        self._read()  # what somebody wrote who had it until now

    def visitor(self, name: str, nth: int, inputs: Inputs, repeat: int = 1) -> Visitor:
        """Returns the nth go at a case of so many, called as pydantic-evals calls it in its report."""
        about: dict[str, Any] = {"name": name, "nth": nth, "inputs": inputs.model_dump(mode="json")}
        about["problem"] = [_text(file) for file in _files(self._folder / inputs.problem)]
        if isinstance(inputs, Subject):
            about["source"] = _text(self._folder / inputs.kernel)
        return Visitor(name if repeat == 1 else f"{name} [{nth}/{repeat}]", inputs, content_hash("case", about), nth)

    def known(self, visitor: Visitor) -> Found | None:
        """Returns what became of a case, where it is finished."""
        return self._found.get(visitor.key)

    def keep(self, visitor: Visitor, found: Found) -> None:
        """Writes down what became of a case."""
        self._write({"key": visitor.key, "found": found.model_dump(mode="json")})
        self._found[visitor.key] = found

    def begun(self, visitor: Visitor) -> Begun | None:
        """Returns the run that is to solve a problem, where it has begun."""
        return self._begun.get(visitor.key)

    def begin(self, visitor: Visitor, begun: Begun) -> None:
        """Writes down which run is to solve a problem, before it begins, and how long it has taken so far."""
        self._write({"key": visitor.key, "begun": begun.model_dump(mode="json")})
        self._begun[visitor.key] = begun

    def forget(self, machine: Machine) -> int:
        """Forgets what was found on any other machine than this one, and returns how many cases that were."""
        others = [key for key, found in self._found.items() if found.machine and found.machine.id != machine.id]
        for key in others:
            del self._found[key]
            self._begun.pop(key, None)
        return len(others)

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Those on which something was found."""
        return tuple({found.machine.id: found.machine for found in self._found.values() if found.machine}.values())

    def end(self) -> None:
        """Removes it: the evaluation is over."""
        self.path.unlink(missing_ok=True)
        if self._claim:
            self._claim.close()
            self._claim = None

    def clear(self) -> None:
        """Forgets everything: the evaluation is to begin anew."""
        self._found.clear()
        self._begun.clear()
        if self.path.exists():
            self.path.write_bytes(b"")

    def _read(self) -> None:
        for key, what in _entries(self.path):
            if isinstance(what, Found):
                self._found[key] = what
            else:
                self._begun[key] = what
                self._found.pop(key, None)  # it was forgotten: a search that is over does not begin

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            with self._lock:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a+b") as file:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - 1))
                    torn = file.read() not in (b"", b"\n")
                    file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise StoreUnavailable(f"the journal {self.path} cannot be written: {error}") from error


def _entries(path: Path) -> Iterator[tuple[str, Found | Begun]]:
    """Yields the key of each line with what it says. A process that was killed may have left half a line, and another
    version of agentgen one that nobody can read: such cases are done again."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(f"the journal {path} cannot be read: {error}") from error
    for line in text.split("\n"):
        try:
            entry = json.loads(line)
            kind = Begun if "begun" in entry else Found
            yield str(entry["key"]), kind.model_validate(entry["begun" if kind is Begun else "found"])
        except (ValueError, KeyError, TypeError):  # pydantic's ValidationError is a ValueError
            continue


def _files(problem: Path) -> list[Path]:
    """Returns what a problem consists of, but for its recording."""
    return sorted(file for file in problem.iterdir() if file.is_file()) if problem.is_dir() else [problem]


def _text(file: Path) -> str | None:
    """Returns the text of a file; None where it cannot be read: whoever needs it will say so."""
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError:
        return None
