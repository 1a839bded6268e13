"""The journal of an evaluation: every case that is finished, on disk before the next begins. One that was killed goes
on where it was.

Lines of JSON. A case is known by its name, by which go at it this was, and by what it consists of, also the text of its
kernel: what has changed since is done again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentgen.errors import StoreUnavailable
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


@dataclass(frozen=True, eq=False)
class Visitor:
    """One go at a case."""

    name: str
    inputs: Inputs
    key: str
    nth: int = 1
    """Which go at it."""


class Journal:
    """What is finished. One process at a time."""

    def __init__(self, path: Path, folder: Path) -> None:
        """Reads what a former process left.

        Args:
            path: of the file; made when there is something to keep.
            folder: that the cases' paths are relative to.
        """
        self._path = path
        self._folder = folder
        self._found: dict[str, Found] = {}
        self._begun: dict[str, str] = {}
        for key, what in _entries(path):
            if isinstance(what, Found):
                self._found[key] = what
            else:
                self._begun[key] = what

    def visitor(self, name: str, nth: int, inputs: Inputs) -> Visitor:
        """Returns the nth go at a case.

        Raises:
            BadInput: its kernel cannot be read.
        """
        about: dict[str, Any] = {"name": name, "nth": nth, "inputs": inputs.model_dump(mode="json")}
        if isinstance(inputs, Subject):
            about["source"] = (self._folder / inputs.kernel).read_text(encoding="utf-8")
        return Visitor(name if nth == 1 else f"{name}, go {nth}", inputs, content_hash("case", about), nth)

    def known(self, visitor: Visitor) -> Found | None:
        """Returns what became of a case, where it is finished."""
        return self._found.get(visitor.key)

    def keep(self, visitor: Visitor, found: Found) -> None:
        """Writes down what became of a case."""
        self._write({"key": visitor.key, "found": found.model_dump(mode="json")})
        self._found[visitor.key] = found

    def run_of(self, visitor: Visitor) -> str | None:
        """Returns the run that is to solve a problem, where it has begun."""
        return self._begun.get(visitor.key)

    def begin(self, visitor: Visitor, run: str) -> None:
        """Writes down which run is to solve a problem, before it begins."""
        self._write({"key": visitor.key, "run": run})
        self._begun[visitor.key] = run

    def end(self) -> None:
        """Removes it: the report is written."""
        self._path.unlink(missing_ok=True)

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            torn = self._path.exists() and not self._path.read_bytes().endswith(b"\n")
            with self._path.open("ab") as file:
                file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreUnavailable(f"the journal {self._path} cannot be written: {error}") from error


def _entries(path: Path) -> Iterator[tuple[str, Found | str]]:
    """Yields the key of each line with what it says. A process that was killed may have left half a line, and another
    version of agentgen one that nobody can read: such cases are done again."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreUnavailable(f"the journal {path} cannot be read: {error}") from error
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            yield entry["key"], entry["run"] if "run" in entry else Found.model_validate(entry["found"])
        except (ValueError, KeyError, TypeError):  # pydantic's ValidationError is a ValueError
            continue
