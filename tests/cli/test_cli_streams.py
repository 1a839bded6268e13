"""A stdout that cannot be written is one line and exit 2, never the 1 of a rejected kernel; stderr changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_program import PROGRAM

import agentgen

ROOT = Path(agentgen.__file__).parents[1]


def in_a_shell(arguments: str, redirected: str) -> subprocess.CompletedProcess[str]:
    shell = f'set -o pipefail; "$PYTHON" -c "{PROGRAM}" {arguments} {redirected}'
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return subprocess.run(["bash", "-c", shell], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("redirected", "why"),
    [(">/dev/full", "No space left"), (">&-", "Bad file descriptor"), ("| sleep 0", "whoever read it has gone")],
)
@pytest.mark.parametrize("arguments", ["problems list --json", "--help", "solve nowhere --json"])
def test_an_answer_that_cannot_be_written_is_one_line_and_exit_2(arguments: str, redirected: str, why: str) -> None:
    ended = in_a_shell(arguments, redirected)
    assert ended.returncode == 2
    assert f"agentgen: stdout cannot be written: {why}" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", "2> >(exec sleep 0)"])
def test_words_that_cannot_be_written_change_nothing(redirected: str) -> None:
    listed = in_a_shell("problems list --json", redirected)
    assert (listed.returncode, bool(json.loads(listed.stdout)["problems"])) == (0, True)
    refused = in_a_shell("solve nowhere --json", redirected)
    assert (refused.returncode, json.loads(refused.stdout)["exit_code"]) == (2, 2)


def test_nobody_gets_the_number_of_a_stream_that_was_closed() -> None:
    """Else what a library prints would go into whatever was opened next."""
    shown = "from agentgen.cli.streams import guard; guard(); import os; print(os.open(os.devnull, 0) > 2)"
    program = f'"$0" -c "{shown}" <&- 2>&-'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(["bash", "-c", program, sys.executable], env=environment, capture_output=True, check=True)
    assert ended.stdout == b"True\n"
