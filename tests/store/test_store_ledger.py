"""The ledger: what goes in comes out, once, in order."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentgen.errors import BadInput, StoreUnavailable
from agentgen.records.chat import ChatReply, Role
from agentgen.records.run import Caps, RunStatus
from agentgen.records.score import Score
from agentgen.store import schema
from agentgen.store.ledger import Ledger, open_ledger
from agentgen.store.rows import CandidateRow, Exchange, IdeaRow, Spent, letter_of

if TYPE_CHECKING:
    from conftest import Make

RUN = "20261121-conv2d-aaaa"


@pytest.fixture
def started(ledger: Ledger, make: Make) -> Ledger:
    ledger.create_run(make.run(RUN))
    return ledger


def test_a_run_and_where_it_stands(ledger: Ledger, url: str, make: Make) -> None:
    run = make.run(RUN)
    assert ledger.create_run(run)
    assert ledger.run(RUN) == run
    ledger.set_status(RUN, RunStatus.WAITING)
    ledger.set_target(RUN, make.target())
    now = run.model_copy(update={"status": RunStatus.WAITING, "target": make.target()})
    assert ledger.run(RUN) == now
    assert not ledger.create_run(run)  # as a resumed start would
    assert ledger.run(RUN) == now
    with open_ledger(url) as again:
        assert again.runs() == (now,)


def test_an_id_belongs_to_one_run(started: Ledger, make: Make) -> None:
    with pytest.raises(BadInput, match=RUN):
        started.create_run(make.run(RUN).model_copy(update={"device": "cuda:0"}))


def test_a_run_that_has_its_target_from_the_start(ledger: Ledger, make: Make) -> None:
    run = make.run(RUN).model_copy(update={"target": make.target()})
    ledger.create_run(run)
    assert ledger.run("latest") == run


def test_a_run_on_many_devices_keeps_them_and_fits_into_its_columns(ledger: Ledger, url: str, make: Make) -> None:
    run = make.run(RUN).model_copy(update={"device": ",".join(f"cuda:{number}" for number in range(8))})
    ledger.create_run(run)
    assert ledger.run(RUN) == run
    assert not ledger.create_run(run)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("select device from run").fetchall() == [("cuda:0",)]


def test_the_caps_of_a_run_are_those_of_now(ledger: Ledger, url: str, make: Make) -> None:
    before, caps = make.run(RUN), Caps(usd=0.5, tokens=20_000)
    ledger.create_run(before)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        ((record,),) = connection.execute("select record from run").fetchall()
        old = json.loads(record)
        del old["caps"], old["settled"], old["plan"]["strategy"], old["plan"]["rewrites"]
        connection.execute("update run set record = ?", (json.dumps(old),))
        connection.commit()
    as_it_was = before.model_copy(update={"plan": before.plan.model_copy(update={"rewrites": 0})})
    assert ledger.run(RUN) == as_it_was, "a run of before there were caps is one without, and writes no idea anew"
    assert not ledger.create_run(as_it_was)
    ledger.set_status(RUN, RunStatus.STOPPED)
    ledger.set_caps(RUN, caps)
    capped = as_it_was.model_copy(update={"caps": caps, "status": RunStatus.STOPPED})
    assert ledger.run(RUN) == capped
    assert not ledger.create_run(as_it_was)  # as a folder brings it along that was packed earlier
    assert ledger.run(RUN) == capped
    ledger.set_caps(RUN, Caps())
    assert ledger.run(RUN).caps == Caps()


def test_rounds_that_are_settled(ledger: Ledger, make: Make) -> None:
    before = make.run(RUN)
    ledger.create_run(before)
    ledger.set_settled(RUN, 3)
    assert ledger.run(RUN) == before.model_copy(update={"settled": 3})
    assert not ledger.create_run(before), "a copy of earlier is the same run"
    with pytest.raises(BadInput, match="no run other"):
        ledger.set_settled("other", 1)


def test_a_run_that_has_caps_from_the_start(ledger: Ledger, make: Make) -> None:
    run = make.run(RUN).model_copy(update={"caps": Caps(minutes=1.5, candidates=7)})
    assert ledger.create_run(run)
    assert ledger.run(RUN) == run
    assert not ledger.create_run(run)


def test_runs_by_reference(ledger: Ledger, make: Make) -> None:
    with pytest.raises(BadInput, match="no run yet"):
        ledger.run("latest")
    ids = ["20261121-a", "20261121-b", "20261122-c", "20261122-c-more", "z1", "z2", "z3"]
    for run_id in ids:
        ledger.create_run(make.run(run_id))
    assert [run.id for run in ledger.runs()] == ids
    assert ledger.run("latest").id == "z3"
    assert ledger.run("20261122-c").id == "20261122-c"
    assert ledger.run("20261122-c-").id == "20261122-c-more"
    with pytest.raises(BadInput, match=r"2 runs start with '20261121'.*: 20261121-b, 20261121-a$"):
        ledger.run("20261121")
    for nobody in ("nobody", "", "%", "Z3"):
        with pytest.raises(BadInput, match=r"no run is called .*: z3, z2, z1, 20261122-c-more, 20261122-c$"):
            ledger.run(nobody)


def test_ideas(started: Ledger, make: Make) -> None:
    assert started.add_idea(RUN, 1, make.idea(1))
    assert started.add_idea(RUN, 2, make.idea(0))
    assert not started.add_idea(RUN, 3, make.idea(1))
    assert started.ideas(RUN) == (IdeaRow(round=1, idea=make.idea(1)), IdeaRow(round=2, idea=make.idea(0)))


def test_candidates(started: Ledger, make: Make) -> None:
    assert started.add_candidate(RUN, 1, make.candidate(1))
    assert started.add_candidate(RUN, 1, make.candidate(0))
    assert not started.add_candidate(RUN, 2, make.candidate(1))
    rows = started.candidates(RUN)
    assert rows == tuple(CandidateRow(round=1, candidate=make.candidate(number)) for number in (1, 0))


def test_trials(started: Ledger, url: str, make: Make) -> None:
    for number in (0, 1):
        started.add_candidate(RUN, 1, make.candidate(number))
    trials = (make.failed(1), make.passed(0), make.passed(1))
    for trial in trials:
        assert started.add_trial(RUN, trial)
        assert not started.add_trial(RUN, trial)
    assert started.trials(RUN) == trials
    with sqlite3.connect(url.removeprefix("sqlite:///")) as plain:
        query = (
            "select t.outcome, c.language, t.speedup, t.faster, t.median_us, t.problem, t.arithmetic, t.machine_id "
            "from trial t join candidate c on c.run_id = t.run_id and c.id = t.candidate order by t.seq"
        )
        place = ("conv2d", "fp32", trials[0].machine.id)
        assert plain.execute(query).fetchall() == [
            ("WRONG_VALUES", "cpp", None, None, None, *place),
            ("PASSED", "cpp", 2.0, 1, 5.1, *place),
            ("PASSED", "cpp", 2.0, 1, 5.1, *place),
        ]


def test_a_trial_needs_its_candidate(started: Ledger, make: Make) -> None:
    with pytest.raises(StoreUnavailable, match="FOREIGN KEY"):
        started.add_trial(RUN, make.passed())
    assert started.trials(RUN) == ()


def test_the_same_candidate_in_two_runs(started: Ledger, url: str, make: Make) -> None:
    started.create_run(make.run("other"))
    assert started.add_candidate(RUN, 1, make.candidate())
    assert started.add_candidate("other", 2, make.candidate())
    assert [row.round for row in started.candidates("other")] == [2]
    with sqlite3.connect(url.removeprefix("sqlite:///")) as plain:
        assert plain.execute("select text from blob").fetchall() == [(make.candidate().source,)]


def test_an_exchange(started: Ledger, make: Make) -> None:
    request, reply = make.request(), make.reply()
    assert started.add_request(RUN, request)
    assert not started.add_request(RUN, request)
    assert started.reply(RUN, request.id) is None
    assert started.exchanges(RUN) == (Exchange(request=request),)
    assert started.add_reply(RUN, request, reply)
    assert not started.add_reply(RUN, request, make.reply("Something else."))
    assert started.reply(RUN, request.id) == reply
    assert started.exchanges(RUN) == (Exchange(request=request, reply=reply),)


def test_a_reply_brings_its_request(started: Ledger, make: Make) -> None:
    assert started.add_reply(RUN, make.request(), make.reply())
    assert started.exchanges(RUN) == (Exchange(request=make.request(), reply=make.reply()),)


def test_each_reply_is_its_own(started: Ledger, make: Make) -> None:
    for number in (0, 1):
        started.add_reply(RUN, make.request(number), make.reply(f"{number}"))
    assert [exchange.reply and exchange.reply.text for exchange in started.exchanges(RUN)] == ["0", "1"]
    one = started.reply(RUN, make.request(1).id)
    assert one is not None
    assert one.text == "1"
    assert started.reply(RUN, "nobody") is None


def test_a_branch_that_ended(started: Ledger, make: Make) -> None:
    request = make.request()
    started.add_request(RUN, request)
    assert started.ended(RUN) == {}
    assert started.end_branch(RUN, request.id, "nothing recorded")
    assert not started.end_branch(RUN, request.id, "another reason")
    assert started.ended(RUN) == {request.id: "nothing recorded"}
    assert started.exchanges(RUN)[0].ended == "nothing recorded"
    with pytest.raises(BadInput, match="no request nobody"):
        started.end_branch(RUN, "nobody", "why")


def test_what_was_spent(started: Ledger, make: Make) -> None:
    nothing = Spent(requests=0, input_tokens=0, output_tokens=0, cost_usd=0, cached_tokens=0, reasoning_tokens=0)
    assert started.spent(RUN) == nothing
    started.add_request(RUN, make.request(9))  # not answered: nothing spent
    counted = make.reply().model_copy(update={"cached_tokens": 7, "reasoning_tokens": 0})
    for number in (0, 1):
        started.add_reply(RUN, make.request(number), counted)
    assert started.spent(RUN) == Spent(
        requests=2, input_tokens=20, output_tokens=8, cost_usd=0.5, cached_tokens=14, reasoning_tokens=0
    )
    started.add_reply(RUN, make.request(2), ChatReply(text="x", model="m", input_tokens=1, cached_tokens=1))
    assert started.spent(RUN) == Spent(
        requests=3, input_tokens=21, output_tokens=None, cost_usd=None, cached_tokens=15, reasoning_tokens=None
    )


def test_what_was_spent_before_replies_had_all_counts(started: Ledger, url: str, make: Make) -> None:
    started.add_reply(RUN, make.request(), make.reply())
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        ((kept,),) = connection.execute("select reply from exchange").fetchall()
        before = {name: value for name, value in json.loads(kept).items() if name[:6] not in ("cached", "reason")}
        connection.execute("update exchange set reply = ?", (json.dumps(before),))
    spent = started.spent(RUN)
    assert (spent.input_tokens, spent.cached_tokens, spent.reasoning_tokens) == (10, None, None)


def test_a_run_that_is_not_there(started: Ledger, make: Make) -> None:
    for call in (
        lambda: started.set_status("x", RunStatus.DONE),
        lambda: started.set_caps("x", Caps()),
        lambda: started.set_target("x", make.target()),
        lambda: started.add_idea("x", 1, make.idea()),
        lambda: started.add_candidate("x", 1, make.candidate()),
        lambda: started.add_trial("x", make.passed()),
        lambda: started.add_request("x", make.request()),
        lambda: started.add_reply("x", make.request(), make.reply()),
        lambda: started.end_branch("x", "y", "z"),
        lambda: started.ideas("x"),
        lambda: started.exchanges("x"),
        lambda: started.spent("x"),
    ):
        with pytest.raises(BadInput, match="run x"):
            call()


def test_closing_leaves_one_file(url: str, make: Make) -> None:
    with open_ledger(url) as ledger:
        ledger.create_run(make.run(RUN))
    folder = Path(url.removeprefix("sqlite:///")).parent
    assert [entry.name for entry in folder.iterdir()] == ["agentgen.db"]


def test_scores_and_single_trials(ledger: Ledger, make: Make) -> None:
    ledger.create_run(make.run(RUN))
    good, bad = make.candidate(0), make.candidate(1)
    for candidate in (good, bad):
        ledger.add_candidate(RUN, 1, candidate)
    assert ledger.trial(RUN, good.id) is None
    assert list(ledger.scores(RUN)) == []
    trials = make.passed(0), make.failed(1)
    for trial in trials:
        ledger.add_trial(RUN, trial)
    assert list(ledger.scores(RUN)) == [Score.of(trial) for trial in trials]
    assert [ledger.trial(RUN, trial.candidate) for trial in trials] == list(trials)


def test_letters_are_exchanges_without_their_texts(ledger: Ledger, make: Make) -> None:
    ledger.create_run(make.run(RUN))
    asked, waiting = make.request(0), make.request(1)
    reply = make.reply("Fünf ☂").model_copy(update={"reasoning": "hm"})
    ledger.add_reply(RUN, asked, reply)
    ledger.add_request(RUN, waiting)
    first, second = ledger.letters(RUN)
    assert first == letter_of(asked, reply)
    assert first.reply_bytes == len("Fünf ☂hm".encode())
    assert (second.id, second.answered, second.reply_bytes) == (waiting.id, False, 0)
    assert [letter.id for letter in ledger.letters(RUN, asked.role)][:1] == [asked.id]
    assert not list(ledger.letters(RUN, Role.REFINE))


def test_a_store_of_before_there_was_an_index_gets_it(ledger: Ledger, url: str) -> None:
    index = schema.trial_by_candidate.name
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute(f"drop index {index}")
        connection.commit()
    with open_ledger(url):
        pass
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        names = connection.execute("select name from sqlite_master where type = 'index'").fetchall()
    assert (index,) in names


def test_a_store_without_the_index_that_cannot_be_written_can_be_read(
    ledger: Ledger, url: str, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    ledger.create_run(make.run(RUN))
    ledger.close()
    path = Path(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"drop index {schema.trial_by_candidate.name}")
        connection.commit()
    with open_ledger(f"sqlite:///file:{path}?mode=ro&uri=true") as read_only:
        assert read_only.run(RUN).id == RUN
    assert not list(elsewhere.iterdir()), "a URI of SQLite's is no path from here"
