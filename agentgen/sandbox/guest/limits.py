"""What a guest may use up: rlimits, set after the fork and before any of the candidate's code.

Not covered here: namespaces, seccomp, Landlock and cgroups, which keep a guest from looking around.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Has the kernel send this process signal `number` when the thread that started it ends, however that happens."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Makes this process the parent of whatever its descendants leave behind, also in sessions of their own."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_first() -> None:
    """Has the kernel end this process, or one that it starts, before the judge where the machine has no memory left."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def apply(limits: Mapping[str, int]) -> None:
    """Sets limits named as in `resource` without RLIMIT_: {"AS": bytes, "NPROC": n, "FSIZE": bytes, ...}."""
    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def enter_scratch(folder: str) -> None:
    """Makes `folder` the working, home, temporary and cache folder of this process."""
    os.chdir(folder)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        os.environ[name] = folder
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    os.environ["TORCH_EXTENSIONS_DIR"] = os.path.join(folder, "torch_extensions")
    tempfile.tempdir = folder  # the zygote may have cached "/tmp"
