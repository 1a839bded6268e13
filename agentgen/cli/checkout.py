"""Which agentgen this is, where it runs from a git checkout of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import agentgen

_TIMEOUT_S = 10.0


def commit() -> dict[str, object] | None:
    """Returns the commit and whether tracked files differ from it; None: agentgen is installed, or there is no git. Of
    an environment inside some other checkout, that one's commit would say nothing."""
    root = _root()
    name = root and _git(root, "rev-parse", "HEAD")
    changes = root and _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"id": name, "changed": bool(changes)} if name and changes is not None else None


def code() -> str:
    """Returns what tells the text of this package from any other: its tree, and what of it was changed since. Empty
    where there is no commit."""
    root = _root()
    tree = root and _git(root, "rev-parse", "HEAD:agentgen")
    return f"{tree}\n{_git(root, 'diff', 'HEAD', '--', 'agentgen') or ''}" if root and tree else ""


def _root() -> Path | None:
    root = Path(agentgen.__file__).resolve().parents[1]
    top = _git(root, "rev-parse", "--show-toplevel")
    return root if top and Path(top).resolve() == root else None


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
