"""Starts the naive harness of `naive.py` and asks it for verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PROGRAM = Path(__file__).with_name("naive.py")


@dataclass(frozen=True)
class Verdict:
    """What the naive harness says of a kernel; times in microseconds a call."""

    correct: bool
    candidate_us: float
    reference_us: float


class NaiveHarness:
    """The running program. Every verdict is given by a process of its own."""

    def __init__(self, device: str = "cpu", *, interpret: bool = False) -> None:
        self._device = device
        variables = {**os.environ, **({"TRITON_INTERPRET": "1"} if interpret else {})}
        self._program = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, text=True
        )

    def __enter__(self) -> NaiveHarness:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._program.stdin
        self._program.stdin.close()
        self._program.wait(10)

    def verdict(self, problem: Path, kernel: Path, *, reference_first: bool = True) -> Verdict:
        """Returns what it says last.

        Raises:
            AssertionError: it says nothing; shows why.
        """
        assert self._program.stdin
        assert self._program.stdout
        with TemporaryDirectory(prefix="agentgen-naive-") as folder:
            spoken, log = Path(folder, "verdict"), Path(folder, "log")
            asked = {"problem": str(problem), "kernel": str(kernel), "reference_first": reference_first}
            asked |= {"device": self._device, "folder": folder, "verdict": str(spoken), "log": str(log)}
            print(json.dumps(asked), file=self._program.stdin, flush=True)
            assert self._program.stdout.readline(), "the naive harness is gone"
            lines = spoken.read_text().splitlines()
            assert lines, log.read_text()[-3000:]
            return Verdict(**json.loads(lines[-1]))
