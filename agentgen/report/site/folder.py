"""A site on disk: written whole, or not at all.

What there was before is replaced, and only if all of it was written here: a list of the files lies among them. Between
two renames there is no folder for a moment; a power cut then leaves both, under names that begin with a dot.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agentgen.errors import BadInput

LIST: Final = "agentgen-site.json"
"""Tells a site from other folders, and its files from those that somebody put beside them."""


def write(files: Mapping[str, bytes], to: Path) -> None:
    """Writes a site in the place of an older one.

    Args:
        files: by their paths within it.
        to: a folder of this, or one that is empty, or none yet.

    Raises:
        BadInput: there is something else, or it cannot be written.
    """
    try:
        target = to.expanduser().resolve()
        _require_ours(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            for name, content in files.items():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                (part / name).write_bytes(content)
            (part / LIST).write_text(json.dumps({"files": sorted([*files, LIST])}, indent=1) + "\n", encoding="utf-8")
            part.chmod(0o755)
            _replace(part, target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself, or nobody's home
        raise BadInput(f"the site cannot be written to {to}: {getattr(error, 'strerror', None) or error}") from error


def _replace(part: Path, target: Path) -> None:
    if not target.exists():
        part.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(old)  # an empty folder gives way
    try:
        part.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _require_ours(target: Path) -> None:
    """Raises BadInput where something lies that was not written here."""
    if not target.exists():
        return
    if not target.is_dir():
        raise BadInput(f"{target} is no folder: give one for the site, new or empty")
    if Path.cwd().is_relative_to(target):
        raise BadInput(f"{target} is the folder you are in, or above it: give another one for the site")
    there = _files(target)
    if not there:
        return
    known = _known(target / LIST)
    if known is None:
        raise BadInput(f"{target} holds files, and is no site of agentgen: give a new or an empty folder")
    if others := sorted(there - known):
        more = f", and {len(others) - 1} more" if others[1:] else ""
        raise BadInput(f"{target} holds {others[0]}{more}, which agentgen did not write there: move it away first")


def _files(folder: Path) -> set[str]:
    """Returns what lies in a folder, links and empty folders too."""
    found: set[str] = set()
    for at, folders, files in os.walk(folder):
        here = Path(at).relative_to(folder)
        links = [name for name in folders if (Path(at) / name).is_symlink()]
        found |= {(here / name).as_posix() for name in (*files, *links)}
        if not folders and not files and Path(at) != folder:
            found.add(here.as_posix())
    return found


def _known(file: Path) -> frozenset[str] | None:
    """Returns what was written there; None where nothing tells."""
    if file.is_symlink() or not file.is_file():
        return None
    try:
        listed = json.loads(file.read_bytes())["files"]
        return frozenset(str(name) for name in listed)
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
