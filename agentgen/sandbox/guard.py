"""Builds the guarding allocator (guest/guard.c), which a sandbox loads into a zygote of its own: `ProcessSandbox("cpu",
preload=guard.library())`.

Not covered: systems without glibc, whose own allocator guard.c calls by name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from agentgen.errors import SandboxUnavailable
from agentgen.jit.cache import cached

_SOURCE = Path(__file__).parent / "guest" / "guard.c"
_OPTIONS = ("-O2", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,defs")
_TIMEOUT_S = 60.0


def library() -> Path:
    """Returns the shared library: built once, then found in the cache of `agentgen.jit`.

    Raises:
        SandboxUnavailable: No C compiler on this machine, or it refuses the source.
    """
    found = shutil.which("gcc") or shutil.which("cc")
    compiler = os.path.realpath(found) if found else ""
    source = _SOURCE.read_text(encoding="utf-8")
    tool = [compiler] if compiler else []
    file, _ = cached(["guard", source, _OPTIONS], tool, ".so", lambda scratch: _compile(compiler, scratch))
    return file


def _compile(compiler: str, scratch: Path) -> str:
    if not compiler:
        raise SandboxUnavailable("guard pages need a C compiler: install gcc and have it on the PATH")
    command = [compiler, str(_SOURCE), *_OPTIONS, "-o", str(scratch / "out"), "-ldl", "-lpthread"]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"guard pages: {error}") from error
    if ended.returncode:
        raise SandboxUnavailable(f"guard pages: {compiler} refuses guard.c: {ended.stderr.strip()[:500]}")
    return ended.stderr
