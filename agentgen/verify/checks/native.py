"""Whose work is it, below torch's dispatcher: the libraries that a candidate brought along.

The list of libraries is the kernel's word (/proc/<pid>/maps), their content the file system's. A library is the
candidate's own if it was not mapped before the candidate was loaded and lies in the guest's scratch folder, or
nowhere that Python, torch and the system keep theirs. Newness alone would not do: Python maps `_ctypes` and a driver
`libcuda` at the first use. Neither would the scratch folder alone: a candidate may write wherever the user may. One
that hides its library among the system's gains nothing, because there its time counts as borrowed.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from agentgen.records.problem import OwnWork
from agentgen.records.trial import Outcome
from agentgen.sandbox.maps import Executable, executables
from agentgen.verify.checks.copied import copied_from
from agentgen.verify.checks.elf import MAGIC, MAX_BYTES, Symbols, UnreadableLibrary, read_symbols
from agentgen.verify.checks.own_work import FREE, listed
from agentgen.verify.findings import NotGated, Rejected, check

READING_S = 20.0
"""For all files that a candidate brought along, and 10 s for one more: a symbol takes 0.1 ms, a file has 100,000."""
_LOOKUPS = frozenset({"dlopen", "dlmopen", "dlsym", "dlvsym", "_dl_sym", "dl_iterate_phdr", "_r_debug"})
_LIBRARIES = r"cblas_|mkl_|MKL_|mkldnn_|dnnl_|openblas_|LAPACKE_"
_MATH = re.compile(
    rf"(?:{_LIBRARIES}|bli_|fftwf?_|Dfti|nnp_|xnn_|pytorch_q|cublas|cudnn|cufft|cusparse|cusolver)\w*"
    r"|vm?[sdcz][A-Z]\w*|(?i:vm?[sdcz](?:exp|ln|log|pow|tanh|erf|sqrt|inv|add|sub|mul|div)\w*)"  # MKL's vmsExp
    # BLAS and LAPACK as Fortran calls them.
    r"|(?i:[sdcz](?:gemm\w*|gemv|symm|symv|hemm|hemv|syrk|syr2k|herk|trmm|trmv|trsm|trsv|ger[uc]?|axpy|dot[uc]?|scal|nrm2"
    r"|asum|getr[fsi]|gesv|potr[fs]|geqrf|gels|gesvd|gesdd|syevd?)(?:_?64)?_?)"
    # torch's operators for those that do not link against C++.
    r"|aoti_torch_(?:cpu|cuda)_\w+|aoti_torch_\w*dispatcher\w*|aoti_torch_(?:addmm|bmm|mm|convolution|_scaled)\w*"
)
_CARRIED = re.compile(rf"(?:{_LIBRARIES}|_ZN2at4_ops)\w*")
_MATH_NAMESPACES = frozenset({"dnnl", "ideep", "fbgemm", "cpublas", "blas"})
_ALIASES = """
    concat data detach_ expand_as item movedim numel ravel requires_grad_ reshape_as size squeeze_ stride swapaxes
    swapdims sym_numel sym_size sym_stride t_ tensor_split transpose_ type_as unsafe_chunk unsafe_split unsqueeze_
    """
_UNCOUNTED = FREE.union(_ALIASES.split())
"""Free also under names that C++ may call and that torch takes apart into free ones before it dispatches."""


@dataclass(frozen=True)
class NativeLibrary:
    """A library that the candidate brought along."""

    path: str
    symbols: Symbols
    unreadable: str = ""
    """Why its symbols are not known."""
    copied: str = ""
    """What of an installed library is in it."""


def mapped_files(pid: int) -> frozenset[str]:
    """Returns the files that a process may execute from now: ask before the candidate is loaded."""
    return frozenset(executable.name for executable in executables(pid))


def own_libraries(pid: int, before: Collection[str], scratch: Path) -> list[NativeLibrary]:
    """Returns the libraries that the candidate brought along: ask while the guest lives, after its last call.

    Args:
        pid: The guest.
        before: `mapped_files` from before the candidate was loaded.
        scratch: The guest's folder; its caches lie below.
    """
    found: dict[str, NativeLibrary | None] = {}
    until = time.monotonic() + READING_S
    for executable in executables(pid):
        name = executable.name
        if name not in before and name not in found and _is_own(name, scratch):
            if time.monotonic() > until:
                return [NativeLibrary(name, Symbols(frozenset(), frozenset()), f"no more read after {READING_S:.0f} s")]
            found[name] = _read(pid, executable)
    return [library for library in found.values() if library]


@check("own work: native symbols")
def borrows_no_symbols(libraries: Sequence[NativeLibrary], policy: OwnWork) -> str | NotGated:
    """Catches a candidate's shared library that is linked against a math library (BLAS, MKL, oneDNN, cuBLAS, cuDNN ...)
    or against torch's computing functions, that looks functions up at run time (dlopen, dlsym), that is such a library
    itself, copied, or that cannot be read. Does not catch addresses that Python looks up and passes to C++, libraries
    that Python calls through ctypes (the processor time catches both), a math library linked in statically under
    other names, and a library that was unloaded before the judge looked.

    Raises:
        Rejected: CHEATED, under `strict`.
    """
    wrong = [f"{os.path.basename(library.path)} {fault}" for library in libraries for fault in _faults(library)]
    if wrong and policy is OwnWork.STRICT:
        raise Rejected(Outcome.CHEATED, *wrong)
    if wrong:
        return NotGated(f"library compute, allowed: {'; '.join(wrong)}")
    if not libraries:
        return "the candidate brought no native library"
    imports = sum(len(library.symbols.imports) for library in libraries)
    return f"{len(libraries)} native libraries of the candidate: {imports} imported symbols, none of a math library"


def _is_own(name: str, scratch: Path) -> bool:
    if name.startswith("["):
        return False
    path = Path(os.path.realpath(name))
    return path.is_relative_to(scratch.resolve()) or not is_kept(name)


@functools.lru_cache(maxsize=4096)
def is_kept(name: str) -> bool:
    """Whether a file lies where no guest can put one: in the folders of the system, of Python or of torch."""
    path = Path(os.path.realpath(name))
    return any(path.is_relative_to(root) for root in _kept_folders())


@functools.cache
def _kept_folders() -> tuple[Path, ...]:
    """Folders of the system, of Python and of torch."""
    listed_by_user = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders = ["/usr", "/lib", "/lib64", "/opt", sys.prefix, sys.base_prefix, str(Path(torch.__file__).parents[1])]
    return tuple(Path(os.path.realpath(folder)) for folder in [*folders, *listed_by_user] if folder)


def _read(pid: int, executable: Executable) -> NativeLibrary | None:
    """Reads a mapped library; None for what is no library, such as the trampolines of libffi."""
    nothing = Symbols(frozenset(), frozenset())
    try:
        content = _content(pid, executable)
        if not content.startswith(MAGIC):
            return None
        return NativeLibrary(executable.name, read_symbols(content), copied=copied_from(content))
    except (OSError, UnreadableLibrary) as error:
        return NativeLibrary(executable.name, nothing, str(error))


def _content(pid: int, executable: Executable) -> bytes:
    # The kernel's link to what is mapped, even where the name is gone; it takes CAP_SYS_ADMIN to follow it.
    link = f"/proc/{pid}/map_files/{executable.start:x}-{executable.end:x}"
    if not os.access(link, os.R_OK) and not executable.deleted:
        link = executable.name
    with open(link, "rb") as file:
        return file.read(MAX_BYTES + 1)


def _faults(library: NativeLibrary) -> Iterable[str]:
    if library.unreadable:
        yield f"cannot be read: {library.unreadable}"
    looked_up = library.symbols.imports & _LOOKUPS
    if looked_up:
        yield f"looks symbols up at run time: {listed(looked_up)}"
    borrowed = {name for name in library.symbols.imports if _is_compute(name)}
    if borrowed:
        yield f"calls a library's compute: {listed(borrowed)}"
    if library.copied:
        yield library.copied
    carried = {name for name in library.symbols.exports if _CARRIED.fullmatch(name)}
    if carried:
        yield f"is a math library itself: it defines {listed(carried)}"


def _is_compute(symbol: str) -> bool:
    """Whether a symbol is a function of a math library, or one of torch that computes."""
    parts = _nested(symbol)
    if not parts:
        return _MATH.fullmatch(symbol) is not None
    if _MATH_NAMESPACES.intersection(parts[:-1]):
        return True
    if parts[0] != "at" or len(parts) < 3:
        return False
    _, space, name = parts[:3]
    if space == "_ops":
        return name not in _free_structs()
    if space == "native":
        return name not in FREE
    operator = re.sub(r"(?:_symint)?(?:_outf?)?$", "", name)
    return operator in _operators() and operator not in _UNCOUNTED  # at::cpu::mm, at::cpu::mm_outf


def _nested(symbol: str) -> list[str]:
    """Returns a mangled name's scopes and name, as far as they are plain: `_ZN2at4_ops2mm4callE...` has four."""
    parts: list[str] = []
    start = re.match(r"_ZNK?", symbol)
    rest = symbol[start.end() :] if start else ""
    while digits := re.match(r"\d+", rest):
        end = digits.end() + int(digits[0])
        parts.append(rest[digits.end() : end])
        rest = rest[end:]
    return parts


@functools.cache
def _operators() -> dict[str, set[str]]:
    """All of ATen: base name -> the names of its overloads' structs in `at::_ops`, such as `empty_memory_format`."""
    found: dict[str, set[str]] = {}
    for full in torch._C._dispatch_get_all_op_names():  # pyright: ignore[reportPrivateUsage]
        namespace, _, name = full.partition("::")
        base, _, overload = name.partition(".")
        if namespace == "aten":
            found.setdefault(base, set()).add(f"{base}_{overload}" if overload else base)
    return found


@functools.cache
def _free_structs() -> frozenset[str]:
    return frozenset().union(*(structs for base, structs in _operators().items() if base in _UNCOUNTED))
