"""The file of past failures: cases are put in where their names belong, and what is there stays as it was written.

pydantic-evals would write the whole file anew, without its comments and a line for each field.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from agentgen.errors import BadInput, StoreUnavailable
from agentgen.records.base import Record
from agentgen.records.problem import Problem
from agentgen.scoring import cases
from agentgen.scoring.cases import About, Inputs, Subject
from agentgen.scoring.verdicts import Verdict
from agentgen.store import foreign
from agentgen.store.locks import alone

_HEAD: Final = "name: {name}\nevaluators: [Decision, OutcomeIs, Cause]\ncases:\n"


@dataclass(frozen=True)
class Entry:
    """A case to be put in."""

    name: str
    inputs: Inputs
    about: About
    expected: Verdict
    source: str | None = None
    """Of the kernel, as it came."""

    @property
    def key(self) -> tuple[str, bool]:
        """What only one case of a dataset has: a cause, and whether it was a refusal in error."""
        assert self.about.past
        return self.about.past.cause, self.expected.accepted


Keys = Mapping[tuple[str, bool], str]
"""Of the causes in a dataset, each with the name of its case."""


def known(path: Path) -> Keys:
    """Returns what a dataset has; nothing where there is no such file.

    Raises:
        BadInput: the file is no dataset.
    """
    return _keys(_cases(path))


def put(path: Path, entries: Sequence[Entry], problem: Problem | None = None) -> None:
    """Adds cases to a dataset, made where there is none, and writes their kernels beside it: all of them or none.

    Args:
        path: of the dataset.
        entries: to be added.
        problem: of theirs, where it comes from outside: it is kept beside the dataset (`problems_of`).

    Raises:
        BadInput: a case of that name or cause is there, or the outcome would be no dataset.
        StoreUnavailable: the files cannot be written.
    """
    if not entries:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path.parent):  # whoever puts in a case at once would write the file without this one
            _require_new(path, entries)
            with _kernels(path.parent, entries), _problem(problems_of(path), problem):
                old = path.read_text(encoding="utf-8") if path.exists() else _HEAD.format(name=_flow(_named(path)))
                _write_whole(path, _with(path, old if old.endswith("\n") else f"{old}\n", entries))
    except OSError as error:
        raise StoreUnavailable(f"the past failures cannot be written to {path}: {error.strerror or error}") from error


def _named(path: Path) -> str:
    return path.stem.replace("_", " ")


def _cases(path: Path) -> list[Any]:
    return cases.load(path).cases if path.exists() else []


def _keys(found: Sequence[Any]) -> Keys:
    every = ((case.metadata, case.expected_output, case.name) for case in found)
    return {
        (about.past.cause, verdict.accepted): name or ""
        for about, verdict, name in every
        if about and about.past and verdict
    }


def _require_new(path: Path, entries: Sequence[Entry]) -> None:
    there = _cases(path)
    names, causes = {case.name for case in there}, dict(_keys(there))
    for entry in entries:
        if entry.name in names:
            raise BadInput(f"{path} has a case {entry.name} already")
        if first := causes.get(entry.key):
            raise BadInput(f"{path} has a case of the cause of {entry.name} already: {first}")
        names.add(entry.name)
        causes[entry.key] = entry.name


@contextmanager
def _kernels(folder: Path, entries: Sequence[Entry]) -> Generator[None]:
    """Writes the kernels, without which no dataset can be read that names them, and takes them away again where their
    cases are not put in after all."""
    new: list[Path] = []
    try:
        for entry in entries:
            if isinstance(entry.inputs, Subject) and entry.source is not None:
                kernel = folder / entry.inputs.kernel
                kernel.parent.mkdir(parents=True, exist_ok=True)
                new += [] if kernel.exists() else [kernel]
                kernel.write_text(entry.source, encoding="utf-8", newline="")
        yield
    except BaseException:
        for kernel in new:
            kernel.unlink(missing_ok=True)
        raise


def problems_of(path: Path) -> Path:
    """Returns the folder of a dataset's problems that come from outside. Without links: a path between two folders goes
    over what lies above both."""
    return path.parent.resolve() / path.stem / "problems"


@contextmanager
def _problem(folder: Path, problem: Problem | None) -> Generator[None]:
    """Writes a problem, and takes it away again as `_kernels` does."""
    new = problem is not None and not (folder / problem.name).exists()
    try:
        if problem:
            foreign.add(problem, folder)
        yield
    except BaseException:
        if problem and new:
            shutil.rmtree(folder / problem.name, ignore_errors=True)
        raise


def replace(kernel: Path, source: str) -> None:
    """Puts a smaller source in a kernel's place. The one that came from the run stays beside it.

    Raises:
        StoreUnavailable: the files cannot be written.
    """
    original = kernel.with_suffix(".original.py")
    try:
        if not original.exists():
            original.write_bytes(kernel.read_bytes())
        kernel.write_text(source, encoding="utf-8", newline="")
    except OSError as error:
        raise StoreUnavailable(f"{kernel} cannot be written: {error.strerror or error}") from error


def _write_whole(path: Path, text: str) -> None:
    part = path.with_name(f".part.{os.getpid()}.{path.name}")
    try:
        part.write_text(text, encoding="utf-8")
        cases.load(part)
        os.replace(part, path)
    except BadInput as error:
        raise BadInput(str(error).replace(str(part), str(path))) from error
    finally:
        part.unlink(missing_ok=True)


def _with(path: Path, text: str, entries: Sequence[Entry]) -> str:
    """Returns the text of a dataset with more cases, each before the first with a later name."""
    for entry in entries:
        place, column = _place(path, text, entry.name)
        block = "".join(f"{' ' * column}{line}" for line in _block(entry).splitlines(keepends=True))
        text = text[:place] + block + text[place:]
    return text


def _place(path: Path, text: str, name: str) -> tuple[int, int]:
    """Returns where in a dataset a case of that name belongs, and in which column its dash.

    Raises:
        BadInput: its cases have no lines of their own.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    fields = root.value if isinstance(root, yaml.MappingNode) else []
    found = next((value for key, value in fields if key.value == "cases"), None)
    if not isinstance(found, yaml.SequenceNode):
        return len(text), 0  # a dataset that begins
    if found.flow_style:
        raise BadInput(f"{path}: its cases stand in brackets: give each lines of its own, the first with a dash")
    later = next((case for case in found.value if _name(case) > name), None)
    mark = later.start_mark if later else found.end_mark
    return text.rfind("\n", 0, mark.index) + 1, found.start_mark.column


def _name(case: yaml.Node) -> str:
    fields = case.value if isinstance(case, yaml.MappingNode) else []
    return next((str(value.value) for key, value in fields if key.value == "name"), "")


def _block(entry: Entry) -> str:
    about = _fields(entry.about)
    past = about.pop("past")
    lines = [
        f"- name: {_flow(entry.name)}",
        f"  inputs: {_flow(_fields(entry.inputs))}",
        "  metadata:",
        *(f"    {key}: {_flow(value)}" for key, value in about.items()),
        "    past:",
        *(f"      {key}: {_flow(value)}" for key, value in past.items()),
        f"  expected_output: {_flow(_fields(entry.expected))}",
    ]
    return "\n".join(lines) + "\n"


def _fields(record: Record) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude_defaults=True)


def _flow(value: object) -> str:
    """Returns a value in one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=1 << 20)
    return text.removesuffix("...\n").strip()
