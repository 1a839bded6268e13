"""The leaderboard on disk: a folder for each entry, `<problem>/<arithmetic>/<device>/<id>/`.

    kernel.py           the source, byte for byte as it was judged
    trial.json          the certificate
    entry.json          the problem as it was, the ideas from the reference to this kernel, who wrote it
    reverified.jsonl    a line for each time that it was judged again

What is in a folder may come from anybody: nothing of it is run here, and nothing is believed that another file of the
folder contradicts. That nobody wrote all of them anew can only be seen by judging again (`agentgen reverify`).
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from pydantic import Field, ValidationError

from agentgen.errors import BadInput, StoreUnavailable
from agentgen.records.base import Record, content_hash
from agentgen.records.candidate import Candidate, Language
from agentgen.records.entry import Entry, Origin, Reverified, Step
from agentgen.records.problem import Problem
from agentgen.records.trial import Trial
from agentgen.store.locks import alone

Kind = TypeVar("Kind", bound=Record)

KERNEL: Final = "kernel.py"
TRIAL: Final = "trial.json"
ENTRY: Final = "entry.json"
REVERIFIED: Final = "reverified.jsonl"
LARGEST: Final = 16 << 20
"""Bytes of a file that is read. A certificate has 0.1 MB."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry, where it lies, and how often it was judged again, the last time last."""

    folder: Path
    entry: Entry
    again: tuple[Reverified, ...] = ()


class _About(Record):
    """`entry.json`: what neither the source nor the certificate says."""

    problem: Problem
    language: Language
    idea: str | None = None
    parent: str | None = None
    repair: int = 0
    chain: tuple[Step, ...] = Field(min_length=1)
    origin: Origin


def root(results: Path) -> Path:
    """Returns the folder of all entries, beside that of runs. Not made yet."""
    return results / "kernels"


def is_entry(folder: Path) -> bool:
    """Returns whether a folder is meant to be that of an entry, whatever state it is in."""
    return (folder / ENTRY).is_file() or ((folder / KERNEL).is_file() and (folder / TRIAL).is_file())


def add(entry: Entry, to: Path) -> Path:
    """Writes the folder of an entry, whole or not at all, and returns it.

    Args:
        entry: certified.
        to: folder of all entries.

    Raises:
        BadInput: it is there already, or another entry has the same source.
        StoreUnavailable: it cannot be written.
    """
    home = to / entry.place
    source = entry.candidate.source.encode()
    candidate = entry.candidate.model_dump(exclude={"source"})
    about = _About(problem=entry.problem, **candidate, chain=entry.chain, origin=entry.origin)
    files = {KERNEL: source, TRIAL: _text(entry.trial), ENTRY: _text(about)}
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with alone(home.parent):
            require_new(home.parent, entry.candidate)
            part = Path(tempfile.mkdtemp(prefix=".entry.", dir=home.parent))
            try:
                for name, content in files.items():
                    (part / name).write_bytes(content)
                part.chmod(0o755)
                part.rename(home)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise StoreUnavailable(f"the entry cannot be written to {home}: {error.strerror or error}") from error
    return home


def require_new(shelf: Path, candidate: Candidate) -> None:
    """Raises BadInput where a kernel is there already.

    Args:
        shelf: folder of the entries that it would be ranked with.
        candidate: with a source that no other of them may have.
    """
    for other in sorted(shelf.glob(f"*/{KERNEL}")):
        if other.parent.name.startswith("."):
            continue  # what somebody began and never finished keeps nobody out
        if other.parent.name == candidate.id or contents(other) == candidate.source.encode():
            raise BadInput(f"{other.parent} is that kernel: agentgen reverify judges it again")


def read(folder: Path) -> Kept:
    """Returns what is in the folder of an entry.

    Raises:
        BadInput: a file is missing, cannot be read, or contradicts another one.
    """
    source, trial, about = (contents(folder / name) for name in (KERNEL, TRIAL, ENTRY))
    said = _record(_About, about, folder / ENTRY)
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{folder / KERNEL}: no UTF-8: {error}") from error
    candidate = Candidate(source=text, language=said.language, idea=said.idea, parent=said.parent, repair=said.repair)
    # The folder's name first: that the source was touched is what a reader wants to hear, not what follows from it.
    name = folder.resolve().name
    if candidate.id != name:
        raise BadInput(
            f"{folder}: source, language and idea are those of {candidate.id}: the source is another one, or the "
            "folder has another name"
        )
    certificate = _record(Trial, trial, folder / TRIAL)
    try:
        entry = Entry(
            problem=said.problem, candidate=candidate, trial=certificate, chain=said.chain, origin=said.origin
        )
    except ValidationError as error:
        raise BadInput(f"{folder}: {fault(error)}") from error
    return Kept(folder, entry, _reverified(folder / REVERIFIED))


def read_all(under: Path) -> tuple[tuple[Kept, ...], tuple[str, ...]]:
    """Returns the entries under a folder, and a line for each that cannot be used."""
    found: list[Kept] = []
    broken: list[str] = []
    for folder in sorted(path for path in under.glob("*/*/*/*") if path.is_dir()):
        if folder.name.startswith("."):
            continue  # one that is being written, or was when somebody pulled the plug
        try:
            kept = read(folder)
            if folder != under / kept.entry.place:
                raise BadInput(f"{folder}: what is in it belongs into {kept.entry.place}")
            found.append(kept)
        except BadInput as error:
            broken.append(str(error))
    return tuple(found), tuple(broken)


def note(folder: Path, again: Reverified) -> None:
    """Adds a line to what is known of an entry.

    Raises:
        StoreUnavailable: it cannot be written.
    """
    try:
        with (folder / REVERIFIED).open("a+b") as file:  # one write: whoever judges it at the same time has a line, too
            before = b"" if _ends_with_a_line(file) else b"\n"
            file.write(before + again.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreUnavailable(f"{folder / REVERIFIED} cannot be written: {error.strerror or error}") from error


def differences(ours: Problem, theirs: Problem) -> tuple[str, ...]:
    """Returns in which fields two problems differ as far as a judge is concerned: a title is words."""
    fields: Sequence[str] = tuple(name for name in Problem.model_fields if name != "title")
    return tuple(name for name in fields if getattr(ours, name) != getattr(theirs, name))


def statement(problem: Problem) -> str:
    """Returns a content hash that two problems share if nothing of `differences` parts them."""
    return content_hash(problem.model_dump(mode="json", exclude={"title"}))


def _ends_with_a_line(file: BinaryIO) -> bool:
    """Returns whether nothing, or a whole line, comes before what is added: an editor may leave the last end out."""
    if not file.seek(0, os.SEEK_END):
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _reverified(file: Path) -> tuple[Reverified, ...]:
    """Returns all lines by their dates: a merge of two branches puts them in any order."""
    if not file.exists():
        return ()
    lines = contents(file).splitlines()
    found = (_record(Reverified, line, file, number) for number, line in enumerate(lines, 1) if line.strip())
    return tuple(sorted(found, key=lambda again: again.date))


def _text(record: Record) -> bytes:
    return record.model_dump_json(indent=2).encode() + b"\n"


def contents(file: Path) -> bytes:
    """Returns what is in a plain file: a pipe would be waited for, a device has no end.

    Raises:
        BadInput: it is missing, no plain file, too large, or cannot be read.
    """
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode):
            raise BadInput(f"{file} is no plain file")
        if about.st_size > LARGEST:
            raise BadInput(f"{file} has {about.st_size} bytes; {LARGEST} are the most that are read")
        return file.read_bytes()
    except FileNotFoundError as error:
        raise BadInput(f"{file} is missing") from error
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}") from error


def _record(kind: type[Kind], content: bytes, file: Path, line: int | None = None) -> Kind:
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        where = f", line {line}" if line else ""
        raise BadInput(f"{file}{where}: {fault(error)}") from error


def fault(error: ValidationError) -> str:
    """Returns the first thing that is wrong. Not what was found there: it may be long, and anybody's."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    return f"{where}: {reason}" if where else reason
