from __future__ import annotations

import pytest
from search_factories import TARGET, Answer, ReplayJudge, ScriptedModel, fenced, ideas_json, make_run, source_text
from search_script import DONE, PLAN, WHOLE, idea_title, ignore, script, search, told

from agentgen.errors import NothingRecorded
from agentgen.models.roster import Roster
from agentgen.records import events
from agentgen.records.candidate import Language
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.run import Plan, Run, RunStatus
from agentgen.records.score import Score
from agentgen.records.trial import Outcome
from agentgen.search.loop import run_search
from agentgen.store.ledger import Ledger


def test_a_whole_run(ledger: Ledger) -> None:
    model, judge = ScriptedModel(script), ReplayJudge()
    assert search(ledger, model, judge) == DONE
    assert told(ledger) == WHOLE
    now = {"status": RunStatus.DONE, "target": TARGET, "settled": 2}
    assert ledger.run("run-1") == make_run(PLAN).model_copy(update=now)
    assert [request.target for request in model.requests] == ["cpu", *["cpp"] * 4, *["cpu"] * 2, *["cpp"] * 4]
    assert judge.targets == 1
    tried = model.asked(Role.IDEAS)[1].prompt
    assert (
        "**Tiles** (memory access; on the reference): predicted 1.5x, reached 1.20x [1.19, 1.21]; cpp: 1.20x, 533.8 us"
        in tried
    )


def test_events_tell_the_story(ledger: Ledger) -> None:
    seen: list[events.Event] = []
    search(ledger, ScriptedModel(script), ReplayJudge(), plan=Plan(rounds=1, ideas=1, repairs=0), watch=seen.append)
    (idea,) = (row.idea for row in ledger.ideas("run-1"))
    (candidate,) = (row.candidate for row in ledger.candidates("run-1"))
    (trial,) = ledger.trials("run-1")
    asked, written = (exchange.request for exchange in ledger.exchanges("run-1"))
    assert seen == [
        events.JudgeStarting(),
        events.JudgeReady(),
        events.RoundStarted(1),
        events.IdeasAsked(1, asked),
        events.RequestSent(asked),
        events.RequestOver(asked),
        events.IdeaProposed(1, idea),
        events.SourceAsked(1, written),
        events.RequestSent(written),
        events.RequestOver(written),
        events.CandidateWritten(1, candidate),
        events.StageStarted(candidate.id, "build"),
        events.TrialDone(1, Score.of(trial)),
        events.RunEnded(RunStatus.DONE),
    ]


def test_the_next_best_candidate_takes_the_place_of_an_ended_branch(ledger: Ledger) -> None:
    def recorded(request: ChatRequest) -> Answer:
        wide = next((row.candidate.id for row in ledger.candidates("run-1")), None)
        if request.role is Role.IDEAS and request.parent == wide:
            return NothingRecorded("not in the recording")
        return script(request)

    seen: list[events.Event] = []
    assert search(ledger, ScriptedModel(recorded), ReplayJudge(), watch=seen.append) == DONE
    assert [row[3] for row in told(ledger)[4:]] == ["Tiles'", "Tiles'", "Threads", "Threads"]
    ends = [event for event in seen if isinstance(event, events.BranchEnded)]
    assert [(end.request.role, end.reason) for end in ends] == [(Role.IDEAS, "not in the recording")]


@pytest.mark.parametrize("role", [Role.WRITE, Role.REPAIR])
def test_branches_that_end_leave_the_rest(ledger: Ledger, role: Role) -> None:
    def recorded(request: ChatRequest) -> Answer:
        return NothingRecorded("not in the recording") if request.role is role else script(request)

    assert search(ledger, ScriptedModel(recorded), ReplayJudge()) == DONE
    expected = [] if role is Role.WRITE else [row for row in WHOLE if "'" not in row[1] + row[3]]
    if role is Role.REPAIR:
        expected += [(2, "Unroll", "cpp", "Threads", 1.6), (2, "Prefetch", "cpp", "Threads", 0.9)]
    assert told(ledger) == expected
    live = ScriptedModel(script)
    assert search(ledger, live, ReplayJudge()) == DONE
    assert not live.requests, "an ended branch stays ended"


def test_a_useless_answer_is_asked_for_again_twice_with_the_reason(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.WRITE and idea_title(request) == "Wide":
            return fenced(source_text("1.30")) if request.attempt == 2 else "I would rather not."
        if request.role is Role.WRITE:
            return "Never."
        return script(request)

    model, plan = ScriptedModel(answer), Plan(rounds=1, ideas=2)
    seen: list[events.Event] = []
    assert search(ledger, model, ReplayJudge(), plan=plan, watch=seen.append) == DONE
    writes = sorted(model.asked(Role.WRITE), key=lambda request: (idea_title(request) != "Wide", request.attempt))
    assert [request.attempt for request in writes] == [0, 1, 2, 0, 1, 2]
    assert len({request.id for request in writes}) == 6
    assert "could not be used" not in writes[0].prompt
    assert writes[1].prompt.startswith(writes[0].prompt)
    assert "There was no fenced block" in writes[1].prompt
    assert writes[2].prompt.count("could not be used") == 1
    assert told(ledger) == [(1, "Wide", "cpp", "-", 1.3)]
    (end,) = (event for event in seen if isinstance(event, events.BranchEnded))
    assert end.request == writes[3]
    assert "no usable answer in 3 attempts: There was no fenced block" in end.reason
    again = ScriptedModel(answer)
    assert search(ledger, again, ReplayJudge()) == DONE
    assert not again.requests


def test_repairs_are_counted_and_an_unchanged_source_is_not_evaluated_again(ledger: Ledger) -> None:
    answers = iter([source_text("BUILD_FAILED"), source_text("CRASHED")])

    def answer(request: ChatRequest) -> Answer:
        return fenced(next(answers)) if request.role is Role.REPAIR else script(request)

    model, judge = ScriptedModel(answer), ReplayJudge()
    plan = Plan(rounds=1, ideas=2, repairs=3, rewrites=0)
    seen: list[events.Event] = []
    assert search(ledger, model, judge, plan=plan, watch=seen.append) == DONE
    assert told(ledger)[1:] == [(1, "Tiles", "cpp", "-", "CRASHED"), (1, "Tiles'", "cpp", "Tiles", "BUILD_FAILED")]
    assert set(judge.evaluated.values()) == {1}
    (end,) = (event for event in seen if isinstance(event, events.BranchEnded))
    assert end.reason.startswith("the answer is the source that was evaluated as")
    assert [request.parent for request in model.asked(Role.REPAIR)] == [
        row.candidate.id for row in ledger.candidates("run-1")[1:]
    ]
    silent = ScriptedModel(answer)
    assert search(ledger, silent, judge) == DONE
    assert not silent.requests


@pytest.mark.parametrize("repairs", [0, 1, 2])
def test_what_fails_goes_back_as_often_as_planned(ledger: Ledger, repairs: int) -> None:
    outcomes = iter(["BUILD_FAILED", "CRASHED", "WRONG_VALUES"])

    def answer(request: ChatRequest) -> Answer:
        return script(request) if request.role is Role.IDEAS else fenced(source_text(next(outcomes)))

    search(ledger, ScriptedModel(answer), ReplayJudge(), plan=Plan(rounds=1, ideas=1, repairs=repairs, rewrites=0))
    assert [row[-1] for row in told(ledger)] == ["BUILD_FAILED", "CRASHED", "WRONG_VALUES"][: repairs + 1]


def test_each_idea_is_tried_in_each_language_and_unrun_code_is_not_repaired(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        verdict = {"triton": "pass", "cuda": Outcome.NOT_RUN.value}
        return fenced(source_text(verdict[request.target])) if request.role is Role.WRITE else script(request)

    model = ScriptedModel(answer)
    languages = (Language.TRITON, Language.CUDA)
    plan = Plan(rounds=2, parents=1, ideas=2, next_ideas=1)
    assert search(ledger, model, ReplayJudge(), plan=plan, languages=languages) == DONE
    rows = told(ledger)
    assert [row[:3] for row in rows[:4]] == [
        (1, "Wide", "triton"),
        (1, "Wide", "cuda"),
        (1, "Tiles", "triton"),
        (1, "Tiles", "cuda"),
    ]
    assert not model.asked(Role.REPAIR)
    parents = {row.candidate.id: row.candidate for row in ledger.candidates("run-1")}
    grown = [row.candidate for row in ledger.candidates("run-1") if row.round == 2]
    assert len(grown) == 2
    assert {parents[candidate.parent or ""].language for candidate in grown} == {Language.TRITON}


def test_a_candidate_is_a_parent_in_one_round_only(ledger: Ledger) -> None:
    plan = Plan(rounds=6, parents=1, ideas=1, next_ideas=1)
    titles = iter(["Wide vectors", "Unroll it", "Prefetch rows", "Pack weights", "Fewer barriers", "Larger tiles"])

    def slower(request: ChatRequest) -> Answer:
        if request.role is Role.IDEAS:
            return ideas_json(next(titles))
        return fenced(source_text("1.30" if "Wide" in idea_title(request) else "0.5"))

    model = ScriptedModel(slower)
    assert search(ledger, model, ReplayJudge(), plan=plan) == DONE
    parents = [request.parent for request in model.asked(Role.IDEAS)]
    assert len(parents) == len(set(parents)) == 6


def test_no_correct_candidate_means_no_further_round(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        return script(request) if request.role is Role.IDEAS else fenced(source_text("WRONG_VALUES"))

    seen: list[events.Event] = []
    plan = Plan(rounds=9, repairs=0, rewrites=0)
    assert search(ledger, ScriptedModel(answer), ReplayJudge(), plan=plan, watch=seen.append) == DONE
    assert [event for event in seen if isinstance(event, events.RoundStarted)] == [
        events.RoundStarted(1),
        events.RoundStarted(2),
    ]


def test_several_models_share_the_requests_by_their_ids(ledger: Ledger) -> None:
    run: Run = make_run(PLAN)
    ledger.create_run(run)
    models = [ScriptedModel(script), ScriptedModel(script)]
    assert run_search(run, ledger, Roster.of(*models), ReplayJudge(), ignore) == DONE
    for index, model in enumerate(models):
        assert model.requests
        assert all(int(request.id, 16) % 2 == index for request in model.requests)
    assert told(ledger) == WHOLE
