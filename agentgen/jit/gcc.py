"""C++17 through g++, for this machine's processor: a shared library's functions as attributes.

Not covered: exceptions that leave a function, which end the process; several source files.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .cache import cached, record
from .errors import CompileError, refused, unknown
from .parameter import TYPES
from .signature import Signature, read_signatures

_TIMEOUT_S = 120.0
_OPTIONS = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-shared", "-fPIC", "-Wl,-z,defs")


class Library:
    """The extern "C" functions of one C++ source, as attributes."""

    def __init__(self, signatures: Mapping[str, Signature], file: Path) -> None:
        library = ctypes.CDLL(str(file))
        self._members = {n: _function(library, s) for n, s in signatures.items() if hasattr(library, n)}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        members = vars(self).get("_members", {})  # none yet in an object that is being copied
        if name not in members:
            raise unknown(name, members)
        return members[name]


def _function(library: ctypes.CDLL, signature: Signature) -> Callable[..., Any]:
    native = library[signature.name]
    native.argtypes = [TYPES[parameter.code][0] for parameter in signature.parameters]
    native.restype = TYPES[signature.returns][0] if signature.returns else None

    def call(*values: Any) -> Any:
        return native(*signature.convert(values, "cpu"))

    call.__name__, call.__doc__ = signature.name, signature.text
    return call


def cpp(source: str, options: Sequence[str] = ()) -> Library:
    """Compiles C++17 for this machine's processor; OpenMP is on. Calls release the GIL.

    Raises:
        CompileError: The compiler refused the source or an option, or took longer than two minutes.
        TypeError: A function has a parameter or result that cannot be passed.
        RuntimeError: No C++ compiler on this machine.
    """
    flags = [*_OPTIONS, *(shlex.split(options) if isinstance(options, str) else options)]
    found = shutil.which("g++") or shutil.which("c++")
    compiler = os.path.realpath(found) if found else ""
    file, _ = cached(
        ["cpp", source, flags, _processor()], [compiler] if compiler else [], ".so",
        lambda scratch: _compile(source, flags, compiler, scratch),
    )  # fmt: skip
    signatures = read_signatures(source, lambda head: not re.search(r"\b(static|inline|template)\b", head))
    library = Library(signatures, file)
    record({"kernel": name} for name in signatures)
    return library


def _compile(source: str, flags: Sequence[str], compiler: str, scratch: Path) -> str:
    """Writes the shared library to `scratch`/out and returns the log."""
    if not compiler:
        raise RuntimeError("no C++ compiler: install g++ (apt-get install g++) and have it on the PATH")
    (scratch / "candidate.cpp").write_text(source, encoding="utf-8")
    command = [compiler, "-fdiagnostics-color=never", "-fmax-errors=5", "candidate.cpp", *flags, "-o", "out"]
    environment = {**os.environ, "LC_ALL": "C"}  # plain quotes and English, whatever the locale
    process = subprocess.Popen(
        command, cwd=scratch, env=environment, encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        log, _ = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the driver's children too
        raise CompileError(
            f"candidate.cpp: g++ was stopped after {_TIMEOUT_S:.0f} s", process.communicate()[0]
        ) from None
    if process.returncode:
        raise refused("candidate.cpp does not compile (g++)", log)
    return log


@functools.cache
def _processor() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if re.match("model name|flags|Features|CPU part", line)}))
