"""What is seen of a run that goes on, in a terminal of its own and by the real program."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from cli_program import agentgen_program
from stored_runs import answer_the_request, stored_run
from terminals import CLOSES, OPENS, SHOWS, frames, program_in, size_of, until

from agentgen.records.chat import Role
from agentgen.store.ledger import open_ledger

IDEA = {"category": "memory access", "title": "Touch \x1b[2J [red]less[/red]", "reasoning": "It is bound by memory."}
CLEARS = re.compile(r"\x1b\[\d*[JK]")


@pytest.fixture
def mailbox(tmp_path: Path) -> Path:
    """The mailbox of a run that is stored, and has asked for ideas."""
    results = tmp_path / "results"
    with open_ledger(f"sqlite:///{results / 'agentgen.db'}") as ledger:
        run = stored_run(ledger)
    return results / "runs" / run.id / "mailbox"


def test_a_window_follows_the_run_and_the_terminal_until_ctrl_c(mailbox: Path, tmp_path: Path) -> None:
    command = ("resume", "latest", "--wait", "--budget-tokens", "900000")
    with program_in(90, 24, *command, folder=tmp_path) as (opened, program):
        until(lambda: "waiting for answers in" in opened.said)
        answer_the_request(mailbox, Role.IDEAS, json.dumps({"ideas": [IDEA]}))
        until(lambda: "[red]less[/red]" in opened.said)
        for size in ((40, 10), (120, 40)):
            opened.resize(*size)
            until(lambda size=size: opened.quiet and size_of(frames(opened.said)[-1]) == size, 5)
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
    said = opened.said
    assert "agentgen: interrupted; the run is stored" in said.rpartition(SHOWS)[2]
    painted = frames(said)
    assert {size_of(frame) for frame in painted} == {(90, 24), (40, 10), (120, 40)}
    last = [row.rstrip() for row in painted[-1]]
    assert re.fullmatch(r"relu on cpu · \d+ s · round 1", last[0])
    assert last[1] == "1 idea · 0 candidates · 0 accepted, 0 rejected"
    assert last[2].startswith("waiting for answers in ")
    assert re.fullmatch(r"unknown \(counted as [\d,]+\) of 900,000 tokens", last[3])
    assert last[4:6] == ["best: none yet", r"└── Touch \x1b[2J [red]less[/red]"]
    assert said.count(OPENS) == said.count(CLOSES) == 1
    assert said.rindex(SHOWS) > said.rindex("\x1b[?25l"), "the cursor is there again"
    assert not CLEARS.search(said)


@pytest.mark.slow
def test_plain_is_lines_without_escape_sequences_on_a_terminal_too(mailbox: Path, tmp_path: Path) -> None:
    with program_in(90, 24, "resume", "latest", "--display", "plain", folder=tmp_path) as (opened, program):
        assert program.wait(60) == 75
    lines = opened.said.splitlines()
    assert "asking for ideas on" in lines[3]
    assert lines[4:6] == ["waiting for 1 answer", "run waiting"]
    assert "\x1b" not in opened.said


@pytest.mark.slow
def test_none_is_the_end_alone(mailbox: Path, tmp_path: Path) -> None:
    ended = agentgen_program("resume", "latest", "--display", "none", folder=tmp_path)
    assert ended.code == 75
    assert ended.stderr.splitlines() == [
        "no candidate was evaluated",
        f"requests and what to do with them: {mailbox}",
        "go on with: agentgen resume 20261121-120000-abcd",
    ]


@pytest.mark.slow
def test_without_a_terminal_live_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    ended = agentgen_program("solve", "conv2d", "--display", "live", folder=tmp_path)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr == "agentgen: --display live needs a terminal that can move its cursor, and stderr is none\n"
    assert not list(tmp_path.iterdir())
