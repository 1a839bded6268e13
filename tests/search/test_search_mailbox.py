"""A capped run that asks a mailbox: what is out counts from walk to walk, and what was written is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from search_factories import ReplayJudge, make_run
from search_script import DONE, PLAN, idea_title, ignore, script, told
from written_requests import read_request

from agentgen.models.exchange import reply_path
from agentgen.models.mailbox import MailboxModel
from agentgen.models.roster import Roster
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.run import Caps, RunStatus
from agentgen.search.loop import SearchResult, run_search
from agentgen.store.ledger import Ledger


@pytest.fixture
def box(tmp_path: Path) -> Path:
    return tmp_path / "box"


def walk(ledger: Ledger, box: Path, caps: Caps, elapsed_s: float = 0.0) -> SearchResult:
    """Starts the run, or goes on with it as `agentgen resume` does."""
    if not ledger.runs():
        ledger.create_run(make_run(PLAN))
    ledger.set_caps("run-1", caps)
    roster = Roster.of(MailboxModel(box))
    return run_search(ledger.run("run-1"), ledger, roster, ReplayJudge(), ignore, lambda: elapsed_s)


def out(box: Path) -> dict[str, ChatRequest]:
    """Returns the requests that nobody has answered: those for code by the title of their idea."""
    requests = [read_request(file) for file in sorted(box.glob("*.request.md"))]
    waiting = [request for request in requests if not reply_path(box, request).exists()]
    return {idea_title(one) if one.role is Role.WRITE else one.role.value: one for one in waiting}


def answer(box: Path, request: ChatRequest) -> None:
    said = script(request)
    assert isinstance(said, str)
    reply_path(box, request).write_text(said)
    os.utime(reply_path(box, request), (1, 1))  # it has rested


@pytest.fixture
def two_of_three(ledger: Ledger, box: Path) -> Caps:
    """Three candidates may be written and three requests for code are out; two are answered, one of them fails."""
    caps = Caps(candidates=3)
    assert walk(ledger, box, caps).answers == 1
    answer(box, out(box)["ideas"])
    assert walk(ledger, box, caps).answers == 3
    for title in ("Wide", "Tiles"):
        answer(box, out(box)[title])
    return caps


def test_a_repair_is_not_sent_in_place_of_a_request_that_is_out(ledger: Ledger, box: Path, two_of_three: Caps) -> None:
    for _ in range(2):
        result = walk(ledger, box, two_of_three)
        assert (result.status, result.answers) == (RunStatus.WAITING, 1)
        assert result.capped is not None
        assert (result.capped.spent, result.capped.waiting, result.capped.next) == (2, 1, 1)
        assert list(out(box)) == ["Threads"]
    answer(box, out(box)["Threads"])
    result = walk(ledger, box, two_of_three)
    assert result.status is RunStatus.STOPPED
    assert sorted(row[1] for row in told(ledger)) == ["Threads", "Tiles", "Wide"]
    assert not out(box)


@pytest.mark.parametrize("less", [Caps(candidates=1), Caps(tokens=1), Caps(minutes=1)])
def test_what_was_written_is_taken_under_whatever_cap(
    ledger: Ledger, box: Path, two_of_three: Caps, less: Caps
) -> None:
    result = walk(ledger, box, less, elapsed_s=3600)
    assert (result.status, result.answers) == (RunStatus.WAITING, 1)
    assert [row[1] for row in told(ledger)] == ["Wide", "Tiles"]
    answer(box, out(box)["Threads"])
    assert walk(ledger, box, less, elapsed_s=3600).status is RunStatus.STOPPED
    assert [row[1] for row in told(ledger)] == ["Wide", "Tiles", "Threads"]
    assert not out(box)


def test_what_another_run_asked_for_in_the_same_folder_is_within_this_ones_caps(ledger: Ledger, box: Path) -> None:
    while walk(ledger, box, Caps()) != DONE:
        for request in out(box).values():
            answer(box, request)
    ledger.create_run(make_run(PLAN, run_id="run-2").model_copy(update={"caps": Caps(candidates=2)}))
    for _ in range(2):
        run_search(ledger.run("run-2"), ledger, Roster.of(MailboxModel(box)), ReplayJudge(), ignore)
        assert len(ledger.candidates("run-2")) == 2
