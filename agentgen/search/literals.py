"""The source texts that a candidate hands to `agentgen.jit`, and on which of its own lines each of theirs stands.

Found are string literals in the call, or bound once, at any place, to a name that the call is given. What is put
together (f-strings, `+`, `.replace`, neighbouring literals) is known to be there and never guessed at.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_KINDS = ("cuda", "cpp")
_ESCAPE = re.compile(r"\n|\\(?:[0-7]{1,3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_NEWLINES = {r"\n", r"\12", r"\012", r"\x0a", r"\u000a", r"\u0000000a"}


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
    """On which line of the candidate each of them stands; 0 where it stands on several."""


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
    """Returns the lines of a literal's text, and on which line of the candidate each stands: 0 where a backslash joined
    several of the candidate's."""
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return (), ()
    segment = ast.get_source_segment(source, text) or ""
    quotes = _quotes(segment)
    if not quotes:
        return (), ()
    start = segment.index(quotes)
    lines, ends = tuple(text.value.split("\n")), text.lineno + segment.count("\n") + 1
    if "r" in segment[:start].lower():
        found = tuple(range(text.lineno, ends))
    else:
        found = tuple(_standing(segment[start + len(quotes) : -len(quotes)], text.lineno))
    return (lines, found) if len(lines) == len(found) else ((), ())


def _standing(body: str, line: int) -> Iterator[int]:
    """Yields where each line of a text stands that is written, with escapes, from a line of the candidate on."""
    held: set[int] = set()
    after = 0
    for match in _ESCAPE.finditer(body):
        joins, ends = match[0] == "\\\n", match[0] == "\n" or match[0].lower() in _NEWLINES
        if not joins and not ends:
            continue
        if match.start() > after:
            held.add(line)
        if ends:
            yield _only(held or {line})
            held = set()
        line += match[0].endswith("\n")
        after = match.end()
    yield _only(held | {line} if len(body) > after else held or {line})


def _only(lines: set[int]) -> int:
    return lines.pop() if len(lines) == 1 else 0


def _quotes(segment: str) -> str:
    """Returns what closes a literal; "" where it is several."""
    try:
        kinds = [token for token in tokenize.generate_tokens(io.StringIO(segment).readline) if token.string.strip()]
    except (tokenize.TokenError, SyntaxError):
        return ""
    if len(kinds) != 1 or kinds[0].type != tokenize.STRING:
        return ""
    return segment[-3:] if segment[-3:] in ('"""', "'''") else segment[-1:]
