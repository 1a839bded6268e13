"""A search and a judge at work, seen in a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from e2e_square import FORGETS_THE_WEIGHT, HONEST, environment
from terminals import CLOSES, SHOWS, STYLE, frames, program_in, size_of, until

IDEA = {"category": "memory access", "title": "One pass over x", "reasoning": "Read once, write once."}


def answer(mailbox: Path, role: str, text: str) -> None:
    """Answers the one request of a role, once it is there."""
    until(lambda: bool(list(mailbox.glob(f"{role}-*.request.md"))))
    (request,) = mailbox.glob(f"{role}-*.request.md")
    request.with_name(request.name.replace(".request.", ".reply.")).write_text(text)


@pytest.mark.slow
def test_a_search_is_seen_from_the_judges_start_to_the_best_kernel(home: Path) -> None:
    mailbox = home / "mailbox"
    options = ("--model", f"mailbox:{mailbox}", "--device", "cpu", "--rounds", "1", "--max-candidates", "2", "--wait")
    with program_in(100, 24, "solve", "square", *options, folder=home, environment=environment(home)) as started:
        opened, program = started
        until(lambda: bool(re.search("the judge starts [2-9]", opened.said)))
        answer(mailbox, "ideas", json.dumps({"ideas": [IDEA]}))
        answer(mailbox, "write", f"```python\n{FORGETS_THE_WEIGHT}\n```")
        answer(mailbox, "repair", f"```python\n{HONEST}\n```")
        assert program.wait(120) == 0
    said = opened.said
    painted = frames(said)
    assert {size_of(frame) for frame in painted} == {(100, 24)}
    left = STYLE.sub("", said.rpartition(CLOSES)[2]).splitlines()
    rows = {row.strip() for row in (*left, *(row for frame in painted for row in frame))}
    for wanted in (
        r"judged: 1 build \d+ s",
        r"judged: 1 time \d+ s",
        r"└── [0-9a-f]{8} cpp check \d+ s",
        r"2 of 2 candidates",
        r"1 idea · 2 candidates · 1 accepted, 1 rejected",
        r"best: [0-9a-f]{8} cpp .* against .*",
    ):
        assert any(re.fullmatch(wanted, row) for row in rows), wanted
    assert left[0].startswith(f"{SHOWS}square on cpu · ")
    assert any(row.startswith("1 of 2 candidates accepted; ") for row in left)
    assert any(row.startswith("kernel: ") for row in left)


@pytest.mark.slow
def test_the_stages_of_one_kernel_are_seen_with_their_clocks(home: Path) -> None:
    command = ("verify", "square", "honest.py", "--device", "cpu")
    with program_in(100, 24, *command, folder=home, environment=environment(home)) as (opened, program):
        assert program.wait(120) == 0
    said = opened.said
    assert re.search(r"open the judge … [2-9] s", said), "it ticks"
    for stage in ("open the judge", "build", "check", "time"):
        assert re.search(rf"{stage} \d+ s\x1b", said), stage
    assert "PASSED" in said
    assert said.rindex(SHOWS) > said.rindex("\x1b[?25l")
