"""What the names in a Python text stand for: `E` after `from torch.cuda import Event as E` is `torch.cuda.Event`.

Only what is plain to read is followed: imports, attributes, `getattr(x, "literal")`, `sys.modules["literal"]`. A name
that is also bound in another way anywhere in the text (a parameter, an assignment) stands for nothing, whatever its
scope: better nothing than the wrong thing. Not covered: values kept under another name, names computed at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """A place where something imported is named in full."""

    name: str
    """As in "torch.cuda.Event.elapsed_time"."""
    line: int
    verb: str
    """How: it "imports" the name, or it "names" it."""


class Names:
    """The names of one text."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        """Reads the bindings.

        Args:
            nodes: All of the text's, an outer one before those in it, as `ast.walk` gives them.
        """
        self._imports: dict[str, str] = {}
        self.bound: set[str] = set()
        """What the text binds other than by an import."""
        for node in nodes:
            self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:  # `import a.b` binds a, `import a.b as c` binds c to a.b
                    root = alias.name.split(".")[0]
                    self._imports[alias.asname or root] = alias.name if alias.asname else root
            case ast.ImportFrom(module=str(module), level=0, names=aliases):
                for alias in aliases:
                    self._imports[alias.asname or alias.name] = f"{module}.{alias.name}"
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                self.bound.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self.bound.add(name)
            case _:
                pass

    def builtin(self, name: str) -> bool:
        """Whether a bare name is Python's own."""
        return name not in self._imports and name not in self.bound

    def full(self, node: ast.AST) -> str | None:
        """Returns what an expression names in full; None where it is nothing imported, or not plain."""
        parts: list[str] = []
        while not isinstance(node, ast.Name):  # a loop: a chain may be as long as the parser bears
            step = self.step(node)
            if step is None:
                return self._of_modules(node, parts)
            node, part = step
            parts.append(part)
        root = self._imports.get(node.id)
        return None if root is None or node.id in self.bound else _joined(root, parts)

    def _of_modules(self, node: ast.AST, parts: list[str]) -> str | None:
        match node:
            case ast.Subscript(value=ast.Name() | ast.Attribute() as modules, slice=ast.Constant(value=str(module))):
                return _joined(module, parts) if self.full(modules) == "sys.modules" else None
            case _:
                return None

    def step(self, node: ast.AST) -> tuple[ast.expr, str] | None:
        """Takes `x.part`, or `getattr(x, "part")`, apart."""
        match node:
            case ast.Attribute(value=value, attr=part):
                return value, part
            case ast.Call(func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(part)), *_]):
                return (value, part) if self.builtin("getattr") else None
            case _:
                return None

    def uses(self, nodes: Sequence[ast.AST]) -> Iterator[Use]:
        """Yields every import and every full name, the longest at each place."""
        inner: set[int] = set()
        for node in nodes:
            match node:
                case ast.Import(names=aliases):
                    yield from (Use(alias.name, node.lineno, "imports") for alias in aliases)
                case ast.ImportFrom(module=str(module), level=0, names=aliases):
                    yield from (Use(f"{module}.{alias.name}", node.lineno, "imports") for alias in aliases)
                case ast.Attribute() | ast.Call() | ast.Subscript():
                    if step := self.step(node):
                        inner.add(id(step[0]))
                    if id(node) not in inner and (name := self.full(node)):
                        yield Use(name, node.lineno, "names")
                case _:
                    pass


def _joined(root: str, parts: list[str]) -> str:
    return ".".join((root, *reversed(parts)))
