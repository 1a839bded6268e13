"""The source texts that a candidate hands to `agentgen.jit`, and on which of its own lines each of theirs stands.

Found are string literals in the call, or bound once, at any place, to a name that the call is given. What is put
together (f-strings, `+`, `.replace`, neighbouring literals) is known to be there and never guessed at.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_KINDS = ("cuda", "cpp")


@dataclass(frozen=True)
class Literal:
    """One call of `jit.cuda` or `jit.cpp`."""

    kind: str
    """"cuda" or "cpp"."""
    first: int
    last: int
    """Lines of the call in the candidate, from 1."""
    text: tuple[str, ...] = ()
    """The lines that the compiler counts: `agentgen.jit` puts nothing before them (its prelude for CUDA is a header of
    its own). Empty: not known."""
    lines: tuple[int, ...] = ()
    """On which line of the candidate each of them ends."""


def literals(source: str) -> list[Literal]:
    """Returns the calls of `agentgen.jit` in a candidate, in the order of its lines; none of what is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    names = dict(_names(tree))
    bound = _bound(tree)
    found: list[Literal] = []
    for node in ast.walk(tree):
        kind = names.get(ast.unparse(node.func)) if isinstance(node, ast.Call) else None
        if kind and isinstance(node, ast.Call):
            given = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "source")]
            text = bound.get(given[0].id) if given and isinstance(given[0], ast.Name) else next(iter(given), None)
            found.append(Literal(kind, node.lineno, node.end_lineno or node.lineno, *_lines(source, text)))
    return sorted(found, key=lambda literal: literal.first)


def _names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields under which names the two functions are known, as `ast.unparse` writes them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "agentgen.jit":
                    yield from ((f"{alias.asname or alias.name}.{kind}", kind) for kind in _KINDS)
        elif isinstance(node, ast.ImportFrom) and node.module == "agentgen":
            modules = [alias.asname or alias.name for alias in node.names if alias.name == "jit"]
            yield from ((f"{module}.{kind}", kind) for module in modules for kind in _KINDS)
        elif isinstance(node, ast.ImportFrom) and node.module == "agentgen.jit":
            yield from ((alias.asname or alias.name, alias.name) for alias in node.names if alias.name in _KINDS)


def _bound(tree: ast.Module) -> dict[str, ast.expr]:
    """Returns what names are bound to, of those that are bound in one place only."""
    times = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not _is_read(node))
    times.update(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        else:
            pairs = [(node.target, node.value)] if isinstance(node, ast.AnnAssign) and node.value else []
        found.update({name.id: value for name, value in pairs if isinstance(name, ast.Name) and times[name.id] == 1})
    return found


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _lines(source: str, text: ast.expr | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Returns the lines of a literal's text, and on which line of the candidate each ends.

    The text up to the end of each line of the candidate is read for itself, so that escapes and lines that a backslash
    joins are counted as Python counts them.
    """
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return (), ()
    segment = ast.get_source_segment(source, text) or ""
    quotes = _quotes(segment)
    if not quotes:
        return (), ()
    lines: list[int] = []
    written = segment.split("\n")
    for index in range(len(written)):
        part = "\n".join([*written[: index + 1], quotes])
        value = text.value if index == len(written) - 1 else ast.literal_eval(part)
        ended = len(value.split("\n")) - (index < len(written) - 1)
        lines += [text.lineno + index] * (ended - len(lines))
    return tuple(text.value.split("\n")), tuple(lines)


def _quotes(segment: str) -> str:
    """Returns what closes a literal; "" where it is several."""
    try:
        kinds = [token for token in tokenize.generate_tokens(io.StringIO(segment).readline) if token.string.strip()]
    except (tokenize.TokenError, SyntaxError):
        return ""
    if len(kinds) != 1 or kinds[0].type != tokenize.STRING:
        return ""
    return segment[-3:] if segment[-3:] in ('"""', "'''") else segment[-1:]
