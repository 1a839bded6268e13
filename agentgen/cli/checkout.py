"""Which agentgen this is, where it runs from a git checkout of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import agentgen

_TIMEOUT_S = 10.0


def commit() -> dict[str, object] | None:
    """Returns the commit and whether tracked files differ from it; None: agentgen is installed, or there is no git. Of
    an environment inside some other checkout, that one's commit would say nothing."""
    root = Path(agentgen.__file__).resolve().parents[1]
    top = _git(root, "rev-parse", "--show-toplevel")
    name = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    if not top or not name or changes is None or Path(top).resolve() != root:
        return None
    return {"id": name, "changed": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
