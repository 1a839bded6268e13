"""Interrupted, waiting and failing runs: whatever happens, going on gives the tree that would have been."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from search_factories import TARGET, Answer, ReplayJudge, ScriptedModel, by_role, make_run
from search_script import DONE, PLAN, WHOLE, contents, idea_title, script, search, told

from agentgen.errors import DeviceNotFound, JudgeDied, ModelUnavailable, NothingRecorded, ReplyPending
from agentgen.records import events
from agentgen.records.candidate import Language
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.run import Plan, RunStatus
from agentgen.search.loop import SearchResult, evaluate_pending
from agentgen.store.ledger import Ledger, open_ledger


def test_a_run_that_is_done_is_told_again_without_asking_anybody(ledger: Ledger) -> None:
    first: list[events.Event] = []
    search(ledger, ScriptedModel(script), ReplayJudge(), watch=first.append)
    before = contents(ledger)
    model, judge = ScriptedModel(script), ReplayJudge(away=True)
    again: list[events.Event] = []
    assert search(ledger, model, judge, watch=again.append) == DONE
    assert not model.requests
    assert contents(ledger) == before
    made = events.RoundStarted, events.IdeaProposed, events.CandidateWritten, events.TrialDone
    recalled, last = again
    assert isinstance(recalled, events.Recalled)
    assert sorted(map(str, recalled.told)) == sorted(str(event) for event in first if isinstance(event, made))
    assert recalled.told[0] == events.RoundStarted(1)
    assert last == events.RunEnded(RunStatus.DONE)


class Fuse:
    """Stops the program at the n-th step: any event, or before an answer of the model or the judge."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


SHORT = Plan(rounds=2, parents=1, ideas=2, next_ideas=1, rewrites=0)


def interrupted(ledger: Ledger, fuse: Fuse) -> None:
    def answer(request: ChatRequest) -> Answer:
        fuse.burn()
        return script(request)

    search(ledger, ScriptedModel(answer), ReplayJudge(interrupt=fuse.burn), SHORT, watch=lambda _event: fuse.burn())


def test_a_run_interrupted_at_any_step_ends_as_if_it_had_not_been(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    search(ledger, ScriptedModel(script), ReplayJudge(), SHORT)
    whole = contents(ledger)
    count = Fuse(1_000_000)
    with open_ledger(f"sqlite:///{tmp_path}/count.db") as other:
        interrupted(other, count)
    steps = 1_000_000 - count.left
    assert steps > 25
    for step in range(1, steps):  # the last one is the event that the run has ended
        with open_ledger(f"sqlite:///{tmp_path}/{step}.db") as other:
            with pytest.raises(KeyboardInterrupt):
                interrupted(other, Fuse(step))
            assert other.run("run-1").status is RunStatus.STOPPED
            held = {exchange.request.id for exchange in other.exchanges("run-1") if exchange.reply}
            tried = {trial.candidate for trial in other.trials("run-1")}
            model, judge = ScriptedModel(script), ReplayJudge()
            assert search(other, model, judge) == DONE
            assert not held & set(model.answered), "asked twice"
            assert not tried & set(judge.evaluated), "evaluated twice"
            assert contents(other) == whole
    gc.collect()
    assert not caplog.records, "asyncio tells of tasks whose exception nobody has seen"
    # Others are of what earlier tests left behind, which `gc.collect` finds too.
    told = [str(one.message) for one in recwarn.list if issubclass(one.category, RuntimeWarning)]
    assert not told, "Python tells of tasks that were not begun"


def test_the_judges_machine_failing_stops_the_run(ledger: Ledger) -> None:
    def fail() -> None:
        raise JudgeDied("it died")

    seen: list[events.Event] = []
    with pytest.raises(JudgeDied):
        search(ledger, ScriptedModel(script), ReplayJudge(interrupt=fail), watch=seen.append)
    assert ledger.run("run-1").status is RunStatus.STOPPED
    assert seen[-1] == events.RunEnded(RunStatus.STOPPED)
    assert not ledger.trials("run-1")


def test_a_model_that_gives_up_stops_the_run_which_goes_on_later(ledger: Ledger) -> None:
    down = ScriptedModel(by_role({Role.IDEAS: script, Role.WRITE: ModelUnavailable("down")}))
    with pytest.raises(ModelUnavailable):
        search(ledger, down, ReplayJudge())
    assert ledger.run("run-1").status is RunStatus.STOPPED
    assert search(ledger, ScriptedModel(script), ReplayJudge()) == DONE
    assert told(ledger) == WHOLE


def test_pending_answers_stop_only_what_needs_them(ledger: Ledger) -> None:
    box: dict[str, str] = {}

    def mailbox(request: ChatRequest) -> Answer:
        return box.get(request.id, ReplyPending("nobody answered yet"))

    def someone_answers(request: ChatRequest) -> None:
        answer = script(request)
        assert isinstance(answer, str)
        box[request.id] = answer

    def walk() -> tuple[SearchResult, list[ChatRequest]]:
        model = ScriptedModel(mailbox)
        result = search(ledger, model, ReplayJudge())
        return result, [request for request in model.requests if request.id not in box]

    result, waiting = walk()
    assert result == SearchResult(RunStatus.WAITING, answers=1)
    assert ledger.run("run-1").status is RunStatus.WAITING
    someone_answers(waiting[0])
    # All write requests of the round are there at once; two are answered first.
    result, waiting = walk()
    assert result == SearchResult(RunStatus.WAITING, answers=3)
    assert [idea_title(request) for request in waiting] == ["Wide", "Tiles", "Threads"]
    someone_answers(waiting[0])
    someone_answers(waiting[1])
    # Those are evaluated, and the failed one waits for its repair, but no parent is chosen yet.
    result, waiting = walk()
    assert result == SearchResult(RunStatus.WAITING, answers=2)
    assert [row[1:] for row in told(ledger)] == [("Wide", "cpp", "-", 1.3), ("Tiles", "cpp", "-", "CRASHED")]
    assert [request.role for request in waiting] == [Role.WRITE, Role.REPAIR]
    while waiting:
        for request in waiting:
            someone_answers(request)
        result, waiting = walk()
    assert result == DONE
    assert sorted(told(ledger)) == sorted(WHOLE)


def test_answers_in_any_order_make_the_same_tree_from_the_same_prompts(ledger: Ledger, tmp_path: Path) -> None:
    languages = (Language.TRITON, Language.CUDA)
    plan = Plan(rounds=2, parents=2, ideas=2, next_ideas=1)
    with open_ledger(f"sqlite:///{tmp_path}/whole.db") as other:
        search(other, ScriptedModel(script), ReplayJudge(), plan, languages)
        whole = told(other)
        prompts = {exchange.request.id: exchange.request.prompt for exchange in other.exchanges("run-1")}
    box: dict[str, Answer] = {}
    while True:
        model = ScriptedModel(lambda request: box.get(request.id, ReplyPending("nobody answered yet")))
        result = search(ledger, model, ReplayJudge(), plan, languages)
        assert {request.id: request.prompt for request in model.requests}.items() <= prompts.items()
        waiting = [request for request in model.requests if request.id not in box]
        if not waiting:
            break
        box[waiting[-1].id] = script(waiting[-1])
    assert result == DONE
    assert sorted(told(ledger)) == sorted(whole)


def test_candidates_wait_for_a_device_that_is_away_and_model_work_goes_on(ledger: Ledger) -> None:
    run = make_run(PLAN)
    ledger.create_run(run)
    ledger.set_target(run.id, TARGET)
    model, away, seen = ScriptedModel(script), ReplayJudge(away=True), list[events.Event]()
    assert search(ledger, model, away, watch=seen.append) == SearchResult(RunStatus.WAITING, evaluations=3)
    assert len(model.asked(Role.WRITE)) == 3
    assert seen[-2:] == [events.RunWaiting(answers=0, evaluations=3), events.RunEnded(RunStatus.WAITING)]
    assert search(ledger, ScriptedModel(script), ReplayJudge()) == DONE
    assert told(ledger) == WHOLE


def test_without_a_device_that_was_ever_seen_nothing_can_be_asked(ledger: Ledger) -> None:
    model = ScriptedModel(script)
    with pytest.raises(DeviceNotFound):
        search(ledger, model, ReplayJudge(away=True))
    assert ledger.run("run-1").status is RunStatus.STOPPED
    assert not model.requests


def test_an_answer_that_comes_late_does_not_change_who_else_was_chosen(ledger: Ledger) -> None:
    late: Answer = ReplyPending("later")

    def answer(request: ChatRequest) -> Answer:
        wide = next((row.candidate.id for row in ledger.candidates("run-1")), None)
        return late if request.role is Role.IDEAS and request.parent == wide else script(request)

    assert search(ledger, ScriptedModel(answer), ReplayJudge()).answers == 1
    late = NothingRecorded("it will not come")
    assert search(ledger, ScriptedModel(answer), ReplayJudge()) == DONE
    assert [row[3] for row in told(ledger)[4:]] == ["Tiles'", "Tiles'", "Threads", "Threads"]


def test_pending_candidates_are_judged_elsewhere_and_nobody_is_asked(ledger: Ledger) -> None:
    """`agentgen evaluate`: written where the device is away, judged where there is no model, gone on with."""
    with open_ledger("sqlite://") as undisturbed:
        search(undisturbed, ScriptedModel(script), ReplayJudge())
        whole = told(undisturbed)
    ledger.create_run(make_run(PLAN))
    ledger.set_target("run-1", TARGET)
    for _ in range(10):
        asked = ScriptedModel(script)
        result = search(ledger, asked, ReplayJudge(away=True))
        if result == DONE:
            break
        judge, events_seen = ReplayJudge(), list[events.Event]()
        count = evaluate_pending(ledger.run("run-1"), ledger, judge, events_seen.append)
        assert count == result.evaluations == judge.calls > 0
        recalled = [event for event in events_seen if isinstance(event, events.Recalled)]
        ideas = {one.idea.id for event in recalled for one in event.told if isinstance(one, events.IdeaProposed)}
        written = [event.candidate for event in events_seen if isinstance(event, events.CandidateWritten)]
        assert {candidate.idea for candidate in written} <= ideas, "a line for each says which idea it is of"
        assert evaluate_pending(ledger.run("run-1"), ledger, judge, lambda _event: None) == 0
    assert told(ledger) == whole


def test_evaluating_where_the_device_is_not_leaves_everything_pending(ledger: Ledger) -> None:
    ledger.create_run(make_run(PLAN))
    ledger.set_target("run-1", TARGET)
    search(ledger, ScriptedModel(script), ReplayJudge(away=True))
    with pytest.raises(DeviceNotFound):
        evaluate_pending(ledger.run("run-1"), ledger, ReplayJudge(away=True), lambda _event: None)
    assert not ledger.trials("run-1")
