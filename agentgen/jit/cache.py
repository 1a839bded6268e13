"""What has been built: on disk, found again by its content by any process, and in this process, listed.

Not covered: the cache is never emptied, and a folder that somebody else can write is trusted.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

_FORMAT = 1  # part of every key: raise it when what is kept changes
_builds: list[dict[str, Any]] = []


def builds() -> list[dict[str, Any]]:
    """Everything built in this process so far: {kernel, registers, spill_bytes, shared_bytes}, or {kernel} for C++."""
    return [dict(entry) for entry in _builds]


def record(entries: Iterable[dict[str, Any]]) -> None:
    """Adds to `builds()` what the caller has just built, or found built."""
    _builds.extend(entries)


@functools.cache
def _folder(base: str) -> Path:
    """`base`/agentgen/jit, or a folder of this process's own where that cannot be written."""
    folder = Path(os.path.expanduser(base)) / "agentgen" / "jit"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="agentgen-jit-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def cached(key: Sequence[Any], tool: Sequence[str], suffix: str, build: Callable[[Path], str]) -> tuple[Path, str]:
    """The built file and the compiler's log: from the cache, or by `build`, which writes `out` into a folder.

    `tool` are the compiler's files; size and time of change stand for its version, so that nothing is run on a hit.
    Without a compiler (`tool` is empty) any version's build will do.
    """
    folder = _folder(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    stamps = [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in tool if os.path.exists(name)]
    digests = [hashlib.sha256(json.dumps(part).encode()).hexdigest() for part in ([_FORMAT, *key], stamps)]
    for file in folder.glob(f"{digests[0]}-{digests[1][:16] if tool else '*'}{suffix}"):
        if file.with_suffix(".log").exists():
            return file, file.with_suffix(".log").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        log = build(Path(scratch))
        file = folder / f"{digests[0]}-{digests[1][:16]}{suffix}"
        Path(scratch, "log").write_text(log, encoding="utf-8")
        os.replace(Path(scratch, "log"), file.with_suffix(".log"))  # first: a file without its log is no hit
        os.replace(Path(scratch, "out"), file)
    return file, log
