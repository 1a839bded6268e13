"""Runs the real program, as a shell would, in an environment of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentgen

PROGRAM = "from agentgen.cli.main import main; main()"


@dataclass(frozen=True)
class Ended:
    """How the program ended and what it said."""

    code: int
    stdout: str
    stderr: str

    @property
    def answer(self) -> dict[str, Any]:
        """The one JSON object; fails where stdout holds anything else."""
        return json.loads(self.stdout)


def agentgen_program(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None, largest_file: int | None = None
) -> Ended:
    """Runs `agentgen ARGUMENTS` in `folder`, with no settings but those given here.

    Args:
        largest_file: bytes that a file of it can have; writing on fails as it does on a full disk.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTGEN_", "OPENAI_"))}
    root = str(Path(agentgen.__file__).parents[1])
    limit = largest_file or resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        env={**inherited, "PYTHONPATH": root, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    return Ended(done.returncode, done.stdout, done.stderr)
