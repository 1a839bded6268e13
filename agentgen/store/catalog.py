"""The problems on disk: one folder each, with `problem.yaml`, `reference.py` and perhaps a `recording/`.

A reference is only parsed here, never run: that is the judge's business.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pydantic import ValidationError

from agentgen.errors import BadInput, UnknownProblem
from agentgen.records.problem import Problem

DEFINITION: Final = "problem.yaml"
REFERENCE: Final = "reference.py"
_REQUIRED: Final = ("Model", "get_inputs", "get_init_inputs")
_SCALAR_BRANCHES: Final = ("int", "float", "bool", "str")


def names(folder: Path) -> tuple[str, ...]:
    """Returns the problems in a catalog, sorted; none where there is no such folder."""
    if not folder.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in folder.iterdir() if (entry / DEFINITION).is_file()))


def load(name_or_folder: str, folder: Path) -> Problem:
    """Returns a problem of the catalog `folder`, or one in a folder of its own.

    Raises:
        UnknownProblem: there is none; names the nearest.
        BadInput: its files cannot be used; names file, field and reason.
    """
    home = _home(name_or_folder, folder)
    definition = home / DEFINITION
    if not definition.is_file():
        raise UnknownProblem(_unknown(name_or_folder, folder))
    fields = _read_yaml(definition)
    reference = read_text(home / REFERENCE)
    module = parse_reference(reference, home / REFERENCE)
    for field, source in (("name", "the folder's name"), ("reference", REFERENCE)):
        if field in fields:
            raise BadInput(f"{definition}: {field}: is {source}, not written here")
    try:
        problem = Problem.model_validate({**fields, "name": home.name, "reference": reference})
    except ValidationError as error:
        raise BadInput(f"{definition}: {_faults(error)}") from error
    _require_constants(problem, module, definition)
    return problem


def recording(name_or_folder: str, folder: Path) -> Path:
    """Returns where the replies recorded for a problem lie, whether there are any or not."""
    return _home(name_or_folder, folder) / "recording"


def _home(name_or_folder: str, folder: Path) -> Path:
    """Returns the folder of a problem. The catalog goes first, so that a name means the same in any directory."""
    listed = name_or_folder in names(folder)
    own = Path(name_or_folder).resolve()
    return folder / name_or_folder if listed or not (own / DEFINITION).is_file() else own


def _unknown(name: str, folder: Path) -> str:
    known = names(folder)
    folded = {other.lower(): other for other in known}
    near = [folded[key] for key in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.5)]
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif known:
        hint = f"there are {', '.join(known)}"
    else:
        hint = f"there are no problems in {folder}"
    return f"no problem is called {name!r} and no folder of that name has a {DEFINITION}; {hint}"


def read_text(path: Path) -> str:
    """Returns what is in a file.

    Raises:
        BadInput: it is not there, or no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


def _read_yaml(path: Path) -> Mapping[str, Any]:
    text = read_text(path)
    try:
        loaded: object = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"{path}, line {line}: no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in cast(dict[object, object], loaded)):
        raise BadInput(f"{path}: must be fields with values, such as `title: ...`")
    return cast(dict[str, Any], loaded)


def _faults(error: ValidationError) -> str:
    """Returns where and why, in one line. The branches of a union that failed are of no interest to a user."""
    told: dict[str, str] = {}
    for fault in error.errors(include_url=False, include_context=False):
        place = [part for part in fault["loc"] if part not in _SCALAR_BRANCHES]
        where = re.sub(r"\.(\d+)", r"[\1]", ".".join(str(part) for part in place))
        reason = fault["msg"].removeprefix("Value error, ")
        told.setdefault(where, reason)
    return "; ".join(f"{where}: {reason}" if where else reason for where, reason in told.items())


def parse_reference(reference: str, path: Path) -> ast.Module:
    """Returns the syntax tree of a reference.

    Raises:
        BadInput: no Python, or a name that the judge needs is not defined.
    """
    try:
        module = ast.parse(reference)
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL byte
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise BadInput(f"{path}{line}: no Python: {error.args[0]}") from error
    missing = [name for name in _REQUIRED if name not in set(_bound(module))]
    if missing:
        raise BadInput(f"{path}: does not define {', '.join(missing)}")
    return module


def _require_constants(problem: Problem, module: ast.Module, definition: Path) -> None:
    """Raises BadInput where a workload overrides what the reference does not have: a typing error, silently ignored."""
    known = set(_bound(module))
    for workload in (*problem.workloads, *problem.smaller, *problem.neighbours):
        for field in ("constants", "cpu_constants"):
            overridden: Mapping[str, object] = getattr(workload, field)
            for name in overridden:
                if name not in known:
                    raise BadInput(f"{definition}: {field} of {workload.name}: {REFERENCE} has no constant {name!r}")


def _bound(module: ast.Module) -> Iterator[str]:
    """Yields the names that a module binds at its top level."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))
            case _:
                pass
