"""Removing what guests leave on the disk, whatever they made of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def remove(folder: Path | str) -> None:
    """Removes a folder with all that is in it, as far as this user may.

    By `rm`: `shutil.rmtree` calls itself and holds a descriptor for each level, so that a candidate had only to nest a
    thousand folders to end the judge by RecursionError.
    """
    opened = ["chmod", "-R", "u+rwx"]  # whoever is not root cannot empty what a candidate has closed
    for command in (["rm", "-rf"], opened, ["rm", "-rf"]):
        if os.path.lexists(folder):
            subprocess.run([*command, "--", str(folder)], stdin=subprocess.DEVNULL, capture_output=True, check=False)
