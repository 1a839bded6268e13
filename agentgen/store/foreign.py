"""Problems from outside: KernelBench-style files, taken as they are, and kept as problems of the catalog."""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

import yaml

from agentgen.errors import BadInput
from agentgen.records.problem import Arithmetic, OwnWork, Problem, Workload
from agentgen.store.catalog import DEFINITION, REFERENCE, parse_reference, read_text

_NARROW: Final = {"bfloat16": Arithmetic.BF16, "float16": Arithmetic.FP16, "half": Arithmetic.FP16}


def from_reference(path: Path, arithmetic: Arithmetic | None, name: str | None = None) -> Problem:
    """Returns the problem of a bare file in KernelBench's manner, at its own sizes.

    Args:
        path: defines `Model`, `get_inputs` and `get_init_inputs`.
        arithmetic: None for that of the dtypes it names: fp32 where it names none.
        name: None for the file's own.

    Raises:
        BadInput: the file cannot be read, is no Python or lacks one of the three.
    """
    reference = read_text(path)
    module = parse_reference(reference, path)
    first_line = (ast.get_docstring(module) or "").strip().partition("\n")[0].strip()
    return Problem(
        name=re.sub(r"[^A-Za-z0-9_.-]", "_", name or path.stem),
        title=first_line or path.stem,
        reference=reference,
        workloads=(Workload(name="main"),),
        arithmetic=arithmetic or _named_arithmetic(module),
        own_work=OwnWork.STRICT,
    )


def references(path: Path) -> tuple[tuple[str, Path], ...]:
    """Returns name and file of each problem that `path` may hold: a `.py` file, or all those under a folder, named
    after their place in it.

    Raises:
        BadInput: there is no such file or folder, or no `.py` file in it.
    """
    if path.is_file():
        return ((path.stem, path),)
    if not path.is_dir():
        raise BadInput(f"there is no file or folder {path}")
    found = [
        file
        for file in path.rglob("*.py")
        if not any(part.startswith((".", "__")) for part in file.relative_to(path).parts)
    ]
    if not found:
        raise BadInput(f"no .py file lies under {path}")
    return tuple(
        ("-".join(file.relative_to(path).with_suffix("").parts), file) for file in sorted(found, key=_by_number)
    )


def add(problem: Problem, folder: Path, note: str | None = None) -> Path:
    """Adds a problem to the catalog `folder`, whole or not at all, and returns its own folder.

    Args:
        problem: with a name that is free, or taken by the same problem.
        folder: of the catalog.
        note: written into `problem.yaml` as a comment.

    Raises:
        BadInput: another problem has the name, or the folder cannot be written.
    """
    home = folder / problem.name
    files = {DEFINITION: _definition(problem, note), REFERENCE: problem.reference}
    if home.exists():
        if all((home / name).is_file() and read_text(home / name) == text for name, text in files.items()):
            return home
        raise BadInput(f"{home} is there already and is another problem: give --name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{problem.name}.", dir=folder))
        try:
            for name, text in files.items():
                (part / name).write_text(text, encoding="utf-8", newline="")
            part.chmod(0o755)
            part.rename(home)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise BadInput(f"the problem cannot be written to {folder}: {error.strerror or error}") from error
    return home


def _definition(problem: Problem, note: str | None) -> str:
    fields = {
        "title": problem.title,
        "arithmetic": problem.arithmetic.value,
        "own_work": problem.own_work.value,
        "workloads": [{"name": workload.name} for workload in problem.workloads],
    }
    comment = f"# {note}\n" if note else ""
    return comment + yaml.safe_dump(fields, sort_keys=False, width=120, allow_unicode=True)


def _named_arithmetic(module: ast.Module) -> Arithmetic:
    named = {node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)}
    return next((arithmetic for name, arithmetic in _NARROW.items() if name in named), Arithmetic.FP32)


def _by_number(file: Path) -> tuple[str, int, str]:
    """Orders 2_x before 10_x, as the authors number them."""
    number = re.match(r"\d+", file.name)
    return str(file.parent), int(number[0]) if number else 0, file.name
