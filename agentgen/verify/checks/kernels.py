"""Whose kernels ran? Device time by kernel, as CUPTI saw it in an instrumented guest, against those the source
defines."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from agentgen.records.problem import OwnWork
from agentgen.records.trial import BuildReport, Outcome
from agentgen.verify.claims import KernelClaim
from agentgen.verify.findings import NotGated, Rejected, check

_CUDA = re.compile(r"__global__\b([^;{]*)")
_ATTRIBUTES = re.compile(r"__(?:launch_bounds|cluster_dims|block_size|maxnreg)__\s*\((?:[^()]|\([^()]*\))*\)")
_TORCH = ("at6native", "at::native", "at_cuda_detail")
_MOVERS = ("FillFunctor", "copy_kernel", "CatArrayBatchedCopy", "arange")
"""In the names of torch's kernels: of all of them, and of those that fill, copy, cast, pad or join. The others compute,
whatever the dispatcher's record says: it can be left."""


def defined(source: str) -> frozenset[str]:
    """Returns the names of the kernels that a candidate's text defines: jitted functions, and what is `__global__`."""
    names = _jitted(source)
    for head in _CUDA.findall(source):
        names.update(re.findall(r"(\w+)\s*\(", _ATTRIBUTES.sub("", head))[:1])
    return frozenset(names)


def identifiers(kernel: str) -> frozenset[str]:
    """Returns a kernel's own identifier, without scopes, arguments and template arguments; of a mangled name by the
    Itanium C++ ABI, 5.1.3: the last of the plain names at its start."""
    if not kernel.startswith("_Z"):
        return frozenset({kernel.split("(")[0].split("<")[0].split()[-1]} if kernel.strip() else ())
    found, rest = "", kernel[2:].removeprefix("N")
    while digits := re.match(r"L?(\d+)", rest):  # L: `static`, or in a namespace without a name
        end = digits.end() + int(digits[1])
        found, rest = rest[digits.end() : end], rest[end:]
    return frozenset({found} if found else ())


def _jitted(source: str) -> set[str]:
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    return {f.name for f in functions if any("jit" in ast.unparse(one) for one in f.decorator_list)}


@check("own kernels")
def own_kernels(
    kernels: Sequence[KernelClaim] | None, source: str, builds: Sequence[BuildReport], policy: OwnWork
) -> str | NotGated:
    """Catches work done by somebody else's kernels, however it was called: cuBLAS and cuDNN through torch, through
    ctypes or from C++, decoy kernels beside them, fallbacks after an exception. Every kernel that ran must be one that
    the source defines; torch's own fills, copies and casts are free.

    Does not catch: native code that forges CUPTI's records in its own process; a kernel of the source named like a
    library's that was never compiled from it.
    """
    if kernels is None:
        return NotGated("no record of kernels here: only a GPU with CUPTI has one")
    own = defined(source) | {build.kernel for build in builds}
    time = {"own": 0.0, "torch": 0.0, "other": 0.0}
    others: list[str] = []
    for kernel in kernels:
        kind = _kind(kernel.name, own)
        time[kind] += kernel.us
        if kind == "other":
            others.append(kernel.name[:120])
    total = sum(time.values())
    shares = f"{_share(time['own'], total)} of device time in {_count(kernels, own)} kernels of its own"
    if time["torch"]:
        shares += f", {_share(time['torch'], total)} in torch's fills, copies and casts"
    if policy is OwnWork.LIBRARY:
        return f"{shares}; {_share(time['other'], total)} in libraries, allowed" if others else shares
    if others:
        raise Rejected(
            Outcome.CHEATED,
            f"{_share(time['other'], total)} of device time in kernels that the source does not define: "
            + ", ".join(sorted(others)[:4]),
        )
    if not time["own"]:
        raise Rejected(Outcome.CHEATED, "no kernel of its own ran")
    return shares


def _kind(name: str, own: frozenset[str]) -> str:
    if identifiers(name) & own:
        return "own"
    moves = any(part in name for part in _TORCH) and any(part in name for part in _MOVERS)
    return "torch" if moves else "other"


def _count(kernels: Sequence[KernelClaim], own: frozenset[str]) -> int:
    return len({kernel.name for kernel in kernels if identifiers(kernel.name) & own})


def _share(part: float, total: float) -> str:
    return f"{part / total:.0%}" if total else "0%"
