from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from search_factories import (
    PROBLEM,
    TARGET,
    Answer,
    ReplayJudge,
    ScriptedModel,
    by_role,
    fenced,
    ideas_json,
    make_run,
    source_text,
)

from agentgen.errors import DeviceNotFound, JudgeDied, ModelUnavailable, NothingRecorded, ReplyPending
from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.run import Plan, Run, RunStatus
from agentgen.records.trial import Outcome, Trial
from agentgen.search import events
from agentgen.search.loop import SearchResult, run_search
from agentgen.store.ledger import Ledger, open_ledger

ROOT = PROBLEM.root(make_run(Plan()).arithmetic)
PLAN = Plan(rounds=2, parents=2, ideas=3, next_ideas=2, repairs=1)
DONE = SearchResult(RunStatus.DONE)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


def ignore(_event: events.Event) -> None:
    """Watches nothing."""


def idea_title(request: ChatRequest) -> str:
    """Returns the title of the idea that a write request is for."""
    return request.prompt.split("# The idea to implement\n\n**")[1].split("**")[0]


VERDICTS = {"Wide": "1.30", "Tiles": "CRASHED", "Threads": "1.10", "Unroll": "1.60", "Prefetch": "0.90"}


def script(request: ChatRequest) -> Answer:
    """Three ideas on the root, two on every other; `Tiles` crashes and is repaired into 1.20."""
    match request.role:
        case Role.IDEAS:
            return ideas_json(*(("Wide", "Tiles", "Threads") if request.parent == ROOT else ("Unroll", "Prefetch")))
        case Role.WRITE:
            return fenced(source_text(VERDICTS[idea_title(request)]))
        case Role.REPAIR:
            return fenced(source_text("1.20"))


def search(
    ledger: Ledger,
    model: ScriptedModel,
    judge: ReplayJudge,
    plan: Plan = PLAN,
    languages: tuple[Language, ...] = (Language.CPP,),
    watch: Callable[[events.Event], None] = ignore,
) -> SearchResult:
    """Starts the run, or goes on with it."""
    if not ledger.runs():
        ledger.create_run(make_run(plan, languages))
    return run_search(ledger.run("latest"), ledger, [model], judge, watch)


def told(ledger: Ledger) -> list[tuple[int, str, str, str, str | float]]:
    """Returns the candidates of the run in a readable form: round, idea, language, parent's idea, what was found."""
    titles = {row.idea.id: row.idea.title for row in ledger.ideas("run-1")}
    found = {trial.candidate: trial for trial in ledger.trials("run-1")}
    candidates = {row.candidate.id: row.candidate for row in ledger.candidates("run-1")}

    def name(candidate: Candidate | None) -> str:
        return titles[candidate.idea or ""] + "'" * candidate.repair if candidate else "-"

    def verdict(trial: Trial | None) -> str | float:
        if trial is None:
            return "open"
        return round(trial.speedup.ratio, 2) if trial.speedup else trial.outcome.value

    return [
        (
            row.round,
            name(row.candidate),
            row.candidate.language.value,
            name(candidates.get(row.candidate.parent or "")),
            verdict(found.get(row.candidate.id)),
        )
        for row in ledger.candidates("run-1")
    ]


WHOLE = [
    (1, "Wide", "cpp", "-", 1.3),
    (1, "Tiles", "cpp", "-", "CRASHED"),
    (1, "Threads", "cpp", "-", 1.1),
    (1, "Tiles'", "cpp", "Tiles", 1.2),
    (2, "Unroll", "cpp", "Wide", 1.6),
    (2, "Prefetch", "cpp", "Wide", 0.9),
    (2, "Unroll", "cpp", "Tiles'", 1.6),
    (2, "Prefetch", "cpp", "Tiles'", 0.9),
]


def contents(ledger: Ledger) -> tuple[object, ...]:
    """Returns all that the ledger holds of the run."""
    return (
        ledger.run("run-1"),
        ledger.ideas("run-1"),
        ledger.candidates("run-1"),
        ledger.trials("run-1"),
        ledger.exchanges("run-1"),
    )


def test_a_whole_run(ledger: Ledger) -> None:
    model, judge = ScriptedModel(script), ReplayJudge()
    assert search(ledger, model, judge) == DONE
    assert told(ledger) == WHOLE
    assert ledger.run("run-1") == make_run(PLAN).model_copy(update={"status": RunStatus.DONE, "target": TARGET})
    assert [request.target for request in model.requests] == ["cpu", *["cpp"] * 4, *["cpu"] * 2, *["cpp"] * 4]
    assert judge.targets == 1
    tried = model.asked(Role.IDEAS)[1].prompt
    assert "**Tiles** (memory access; on the reference): cpp: 1.20x, 533.8 us" in tried


def test_a_run_that_is_done_is_told_again_without_asking_anybody(ledger: Ledger) -> None:
    first: list[events.Event] = []
    search(ledger, ScriptedModel(script), ReplayJudge(), watch=first.append)
    before = contents(ledger)
    model, judge = ScriptedModel(script), ReplayJudge(away=True)
    again: list[events.Event] = []
    assert search(ledger, model, judge, watch=again.append) == DONE
    assert not model.requests
    assert contents(ledger) == before
    assert again == [event for event in first if not isinstance(event, events.StageStarted)]


def test_events_tell_the_story(ledger: Ledger) -> None:
    seen: list[events.Event] = []
    search(ledger, ScriptedModel(script), ReplayJudge(), plan=Plan(rounds=1, ideas=1, repairs=0), watch=seen.append)
    (idea,) = (row.idea for row in ledger.ideas("run-1"))
    (candidate,) = (row.candidate for row in ledger.candidates("run-1"))
    (trial,) = ledger.trials("run-1")
    asked, written = (exchange.request for exchange in ledger.exchanges("run-1"))
    assert seen == [
        events.RoundStarted(1),
        events.IdeasAsked(1, asked),
        events.IdeaProposed(1, idea),
        events.SourceAsked(1, written),
        events.CandidateWritten(1, candidate),
        events.StageStarted(candidate.id, "build"),
        events.TrialDone(1, trial),
        events.RunEnded(RunStatus.DONE),
    ]


class Fuse:
    """Stops the program at the n-th step: any event, or before an answer of the model or the judge."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


SHORT = Plan(rounds=2, parents=1, ideas=2, next_ideas=1)


def interrupted(ledger: Ledger, fuse: Fuse) -> None:
    def answer(request: ChatRequest) -> Answer:
        fuse.burn()
        return script(request)

    search(ledger, ScriptedModel(answer), ReplayJudge(interrupt=fuse.burn), SHORT, watch=lambda _event: fuse.burn())


def test_a_run_interrupted_at_any_step_ends_as_if_it_had_not_been(ledger: Ledger, tmp_path: Path) -> None:
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
    assert away.calls == 1
    assert seen[-2:] == [events.RunWaiting(answers=0, evaluations=3), events.RunEnded(RunStatus.WAITING)]
    assert search(ledger, ScriptedModel(script), ReplayJudge()) == DONE
    assert told(ledger) == WHOLE


def test_without_a_device_that_was_ever_seen_nothing_can_be_asked(ledger: Ledger) -> None:
    model = ScriptedModel(script)
    with pytest.raises(DeviceNotFound):
        search(ledger, model, ReplayJudge(away=True))
    assert ledger.run("run-1").status is RunStatus.STOPPED
    assert not model.requests


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


def test_an_answer_that_comes_late_does_not_change_who_else_was_chosen(ledger: Ledger) -> None:
    late: Answer = ReplyPending("later")

    def answer(request: ChatRequest) -> Answer:
        wide = next((row.candidate.id for row in ledger.candidates("run-1")), None)
        return late if request.role is Role.IDEAS and request.parent == wide else script(request)

    assert search(ledger, ScriptedModel(answer), ReplayJudge()).answers == 1
    late = NothingRecorded("it will not come")
    assert search(ledger, ScriptedModel(answer), ReplayJudge()) == DONE
    assert [row[3] for row in told(ledger)[4:]] == ["Tiles'", "Tiles'", "Threads", "Threads"]


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
    writes = model.asked(Role.WRITE)
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
    plan = Plan(rounds=1, ideas=2, repairs=3)
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

    search(ledger, ScriptedModel(answer), ReplayJudge(), plan=Plan(rounds=1, ideas=1, repairs=repairs))
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

    def slower(request: ChatRequest) -> Answer:
        return (
            fenced(source_text("0.5")) if request.role is Role.WRITE and "Unroll" in request.prompt else script(request)
        )

    model = ScriptedModel(slower)
    assert search(ledger, model, ReplayJudge(), plan=plan) == DONE
    parents = [request.parent for request in model.asked(Role.IDEAS)]
    assert len(parents) == len(set(parents)) == 6


def test_no_correct_candidate_means_no_further_round(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        return script(request) if request.role is Role.IDEAS else fenced(source_text("WRONG_VALUES"))

    seen: list[events.Event] = []
    assert (
        search(ledger, ScriptedModel(answer), ReplayJudge(), plan=Plan(rounds=9, repairs=0), watch=seen.append) == DONE
    )
    assert [event for event in seen if isinstance(event, events.RoundStarted)] == [
        events.RoundStarted(1),
        events.RoundStarted(2),
    ]


def test_several_models_share_the_requests_by_their_ids(ledger: Ledger) -> None:
    run: Run = make_run(PLAN)
    ledger.create_run(run)
    models = [ScriptedModel(script), ScriptedModel(script)]
    assert run_search(run, ledger, models, ReplayJudge(), ignore) == DONE
    for index, model in enumerate(models):
        assert model.requests
        assert all(int(request.id, 16) % 2 == index for request in model.requests)
    assert told(ledger) == WHOLE
