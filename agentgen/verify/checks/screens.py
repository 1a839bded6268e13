"""Looks at a candidate's text before anything runs: early, well-worded refusals. Never the only defence.

Everything refused here is also without effect, or found, when it runs: the judge and its clock are in another process,
the jail has no network, and what torch computes is counted. A text that hides what it does (names put together at run
time, C++ that forks) is left to those. So a look is only worth having where it cannot hit an honest kernel.

Allowed on purpose: flags that are there to be set (`torch.backends.cuda.matmul.allow_tf32`), reading and writing
`os.environ` (`TORCH_CUDA_ARCH_LIST`), `open`, `load_inline`, streams, graphs, and `ctypes` for types and addresses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from textwrap import shorten

from agentgen.records.candidate import Candidate
from agentgen.records.problem import OwnWork
from agentgen.records.trial import Outcome
from agentgen.verify.checks.dotted import Names
from agentgen.verify.checks.reach import (
    BUILTINS,
    CODE,
    COMPUTE,
    DISPATCH,
    FRAMES,
    HOOKS,
    INNARDS,
    PATCH_ADVICE,
    PROC,
    SETTINGS,
    into_agentgen,
    reached,
)
from agentgen.verify.findings import Rejected, check

MAX_SOURCE_BYTES = 1 << 20
MOST_REASONS = 6
MOST_CHARACTERS = 400  # a name may be as long as the text

Objection = tuple[int, str]
"""Line, and what was found there with what to do instead."""


@check("screen")
def screen(candidate: Candidate, own_work: OwnWork) -> str:
    """Reads the candidate's text before anything of it runs.

    Catches a file that is no Python or has no `ModelNew`, and text that plainly reaches for what no kernel needs: the
    judge, other processes, threads, the network, signals, stack frames and other objects of the interpreter, code made
    at run time, torch's dispatcher, attributes of imported modules and classes that it replaces (a patched
    `Event.elapsed_time`), `/proc`; where own work is strict also libraries loaded through ctypes, and a heavy function
    of torch that every call of `forward` runs into. Does not catch what is hidden (names put together at run time,
    values under other names, anything in C++ but a path below `/proc`), nor calls of modules (`self.conv(x)`) and of
    methods (`x.sum()`): the jail, the judge's own clock and the count of torch's operators are there for those.

    Args:
        candidate: The text.
        own_work: Whether library compute is allowed.

    Raises:
        Rejected: BUILD_FAILED for a syntax error or a missing `ModelNew`, SCREENED_OUT for a reach.
    """
    tree = _parsed(candidate.source)
    nodes = list(ast.walk(tree))
    names = Names(nodes)
    objections = {*_reaches(nodes, names, own_work), *_patches(nodes, names), *_innards(nodes, names), *_paths(nodes)}
    if own_work is OwnWork.STRICT:
        objections |= set(_borrowed(tree, names))
    if objections:
        ordered = [f"line {line}: {shorten(said, MOST_CHARACTERS)}" for line, said in sorted(objections)]
        more = [f"and {len(ordered) - MOST_REASONS} more"] if len(ordered) > MOST_REASONS else []
        raise Rejected(Outcome.SCREENED_OUT, *ordered[:MOST_REASONS], *more)
    lines = candidate.source.count("\n") + 1
    return f"no reach for the judge, the clock, threads or other processes in {lines} lines"


def _parsed(source: str) -> ast.Module:
    if len(source.encode()) > MAX_SOURCE_BYTES:
        raise Rejected(Outcome.SCREENED_OUT, f"the source is over {MAX_SOURCE_BYTES} bytes")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        raise Rejected(Outcome.BUILD_FAILED, f"the source is no Python: {where}") from error
    if "ModelNew" not in set(_top_level_names(tree)):
        raise Rejected(Outcome.BUILD_FAILED, "the source defines no ModelNew at its top level")
    return tree


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


def _reaches(nodes: Sequence[ast.AST], names: Names, own_work: OwnWork) -> Iterator[Objection]:
    """Yields what is named of other modules and of Python itself."""
    imported: set[str] = set()
    for use in sorted(names.uses(nodes), key=lambda use: use.verb != "imports"):
        if into_agentgen(use.name):
            yield use.line, f"{use.verb} {use.name}; of agentgen a candidate may import jit"
        elif reach := reached(use.name, own_work):
            if use.verb == "imports":
                imported.add(use.name)
            elif use.name.startswith(tuple(f"{name}." for name in imported)):
                continue  # the import has been told
            yield use.line, f"{use.verb} {use.name}; {reach.advice}"
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in BUILTINS and names.builtin(name):
                yield node.lineno, f"names {name}; {CODE.advice}"
            case _:
                pass


def _patches(nodes: Sequence[ast.AST], names: Names) -> Iterator[Objection]:
    """Yields attributes of imported modules and classes that are replaced, and torch's own operators."""
    for node in nodes:
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                target = names.full(node)
            case ast.Subscript(value=table, ctx=ast.Store() | ast.Del()):
                target = _owner_of(table, names)
            case ast.Call(func=ast.Name(id="setattr" | "delattr" as builtin), args=[owner, name, *_]):
                target = _named(names.full(owner), name) if names.builtin(builtin) else None
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                target = _operator(names.full(function), name)
            case _:
                continue
        if target and not SETTINGS.match(target):
            yield node.lineno, f"replaces {target}; {PATCH_ADVICE}"


def _named(owner: str | None, name: ast.expr) -> str | None:
    """Returns the full name of `setattr(owner, name, ...)`'s target."""
    if owner is None:
        return None
    return f"{owner}.{name.value}" if isinstance(name, ast.Constant) else f"{owner}.*"


def _owner_of(table: ast.expr, names: Names) -> str | None:
    """Returns the module or class whose attributes are set in `vars(x)[...] =` and `x.__dict__[...] =`."""
    match table:
        case ast.Call(func=ast.Name(id="vars"), args=[owner]):
            return names.full(owner)
        case _:
            name = names.full(table) or ""
            return name if name == "sys.modules" or name.endswith(".__dict__") else None


def _operator(function: str | None, name: str) -> str | None:
    """Returns the operator, or all of ATen, that `torch.library` is asked to implement anew."""
    into_torch = name.split("::")[0] in {"aten", "prims"}
    return name if into_torch and (function or "").startswith("torch.library.") else None


def _innards(nodes: Sequence[ast.AST], names: Names) -> Iterator[Objection]:
    """Yields innards of functions, frames and tensors."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name in HOOKS:
            yield node.lineno, f"defines {node.name}; {DISPATCH.advice}"
        match names.step(node):
            case (ast.Name(id="self"), _):
                pass  # an attribute of the candidate's own, whatever it is called
            case (_, part) if part in INNARDS:
                yield getattr(node, "lineno", 0), f"takes {part}; {FRAMES.advice}"
            case _:
                pass


def _paths(nodes: Sequence[ast.AST]) -> Iterator[Objection]:
    """Yields strings with a path below /proc; a docstring may speak of it."""
    spoken: set[int] = set()
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant() as words):
                spoken.add(id(words))
            case ast.Constant(value=str(text)) if id(node) not in spoken and (found := PROC.search(text)):
                line = node.lineno + text.count("\n", 0, found.start())  # too high where a line break is written "\\n"
                yield min(line, node.end_lineno or line), f"has a path below /proc; {FRAMES.advice}"
            case _:
                pass


def _borrowed(tree: ast.Module, names: Names) -> Iterator[Objection]:
    """Yields torch's heavy functions that every call of `ModelNew.forward` runs into."""
    models = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
    forwards = [node for model in models[-1:] for node in model.body if isinstance(node, ast.FunctionDef)]
    for forward in [function for function in forwards if function.name == "forward"][-1:]:
        for node in _always_run(forward.body):
            name = names.full(node.func) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and name in COMPUTE:
                yield (
                    node.lineno,
                    f"forward calls {name}, so torch would compute for the candidate, and own work is strict here; "
                    "write that step as a kernel of your own",
                )


def _always_run(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yields the expressions that a call cannot get round: not those in branches, loops and what comes after a branch
    that may return."""
    for statement in body:
        match statement:
            case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Return():
                yield from _evaluated(statement)
            case ast.With(body=inner):
                yield from _always_run(inner)
            case _:
                pass
        if any(isinstance(node, ast.Return | ast.Raise) for node in ast.walk(statement)):
            return


def _evaluated(statement: ast.stmt) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Lambda | ast.IfExp | ast.BoolOp | ast.ListComp | ast.GeneratorExp | ast.SetComp):
            continue
        if isinstance(node, ast.DictComp | ast.Compare):  # a chain of comparisons stops at the first that fails
            continue
        yield node
        waiting += ast.iter_child_nodes(node)
