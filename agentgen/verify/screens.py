"""Looks at a candidate's text before anything runs: early, well-worded refusals. Never the only defence."""

from __future__ import annotations

import ast

from agentgen.records.candidate import Candidate
from agentgen.records.trial import Outcome
from agentgen.verify.session import Rejected

MAX_SOURCE_BYTES = 1 << 20


def screen(candidate: Candidate) -> None:
    """Refuses text that cannot be a candidate.

    Raises:
        Rejected: BUILD_FAILED for a syntax error or a missing `ModelNew`, SCREENED_OUT for reaching into the judge.
    """
    if len(candidate.source.encode()) > MAX_SOURCE_BYTES:
        raise Rejected(Outcome.SCREENED_OUT, f"the source is over {MAX_SOURCE_BYTES} bytes")
    try:
        tree = ast.parse(candidate.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise Rejected(Outcome.BUILD_FAILED, f"the source is no Python: {where}") from error
    if "ModelNew" not in set(_top_level_names(tree)):
        raise Rejected(Outcome.BUILD_FAILED, "the source defines no ModelNew at its top level")
    for node in ast.walk(tree):
        for module, line in _imported(node):
            if module.split(".")[0] == "agentgen" and module not in {"agentgen", "agentgen.jit"}:
                raise Rejected(
                    Outcome.SCREENED_OUT,
                    f"line {line}: imports {module}; of agentgen a candidate may import jit",
                )


def _top_level_names(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.append(name)
            case ast.Assign(targets=targets):
                names += [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.ImportFrom(names=aliases):
                names += [alias.asname or alias.name for alias in aliases]
            case _:
                pass
    return names


def _imported(node: ast.AST) -> list[tuple[str, int]]:
    match node:
        case ast.Import(names=aliases):
            return [(alias.name, node.lineno) for alias in aliases]
        case ast.ImportFrom(module=str(module), names=aliases):
            return [(f"{module}.{a.name}" if module == "agentgen" else module, node.lineno) for a in aliases]
        case _:
            return []
