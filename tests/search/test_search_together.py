"""Things that go on at the same time: what a failure stops, what a cap waits for, what a walk need not do again."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
from search_factories import (
    PROBLEM,
    TARGET,
    Answer,
    ReplayJudge,
    ScriptedModel,
    fenced,
    ideas_json,
    make_candidate,
    make_idea,
    make_run,
    passed,
    source_text,
)
from search_script import DONE, ROOT, ignore, script, search, told

from agentgen.errors import AgentgenError, JudgeDied, ModelUnavailable, PromptRefused, ReferenceInvalid, ReplyPending
from agentgen.models.roster import Roster
from agentgen.records import events
from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.run import Caps, Plan, RunStatus, Strategy
from agentgen.records.trial import Trial
from agentgen.search.known import known_as, repeats
from agentgen.search.loop import SearchResult, run_search
from agentgen.search.tree import Tree
from agentgen.store.ledger import Ledger

TITLES = ("Wide", "Tiles", "Threads", "Unroll", "Prefetch", "Pack", "Cache", "Fuse")
EIGHT = Plan(rounds=1, ideas=8, repairs=0, rewrites=0)


class SlowModel(ScriptedModel):
    """Takes its time, and counts how many of its requests are under way."""

    def __init__(self, answer: Callable[[ChatRequest], Answer], seconds: float = 0.02) -> None:
        super().__init__(answer)
        self._seconds = seconds
        self.under_way = self.most = self.cut = 0

    async def ask(self, request: ChatRequest) -> ChatReply:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await anyio.sleep(self._seconds)
            reply = await super().ask(request)
            return reply.model_copy(update={"input_tokens": 2000, "output_tokens": 1000})
        except anyio.get_cancelled_exc_class():
            self.cut += 1
            raise
        finally:
            self.under_way -= 1


def eight(request: ChatRequest) -> Answer:
    """Eight ideas, each of its own speed."""
    if request.role is Role.IDEAS:
        return ideas_json(*TITLES)
    return fenced(source_text("1.20") + f"# {request.parent}\n")


def go(ledger: Ledger, model: ScriptedModel, judge: ReplayJudge, plan: Plan, caps: Caps | None = None) -> SearchResult:
    """Starts a run, or goes on with it."""
    if not ledger.runs():
        ledger.create_run(make_run(plan).model_copy(update={"caps": caps or Caps()}))
    return run_search(ledger.run("run-1"), ledger, Roster.of(model), judge, ignore)


def test_ideas_are_implemented_side_by_side(ledger: Ledger) -> None:
    model = SlowModel(eight)
    assert go(ledger, model, ReplayJudge(), EIGHT) == DONE
    assert model.most == 8
    assert len(told(ledger)) == 8


def test_a_cap_waits_for_what_is_under_way_before_it_stops_anything(ledger: Ledger) -> None:
    """Each request could take 16,384 tokens and more, and takes 3,000: all nine fit one after the other."""
    model = SlowModel(eight)
    assert go(ledger, model, ReplayJudge(), EIGHT, Caps(tokens=50_000)) == DONE
    assert len(told(ledger)) == 8
    assert 1 < model.most < 8


def test_a_cap_stops_what_would_not_fit_alone(ledger: Ledger) -> None:
    result = go(ledger, SlowModel(eight), ReplayJudge(), EIGHT, Caps(candidates=5))
    assert result.status is RunStatus.STOPPED
    assert len(told(ledger)) == 5, "all that fit, though eight were asked for at once"


class FailingJudge(ReplayJudge):
    """Fails at one evaluation."""

    def __init__(self, error: Exception, at: int) -> None:
        super().__init__()
        self._error = error
        self._at = at

    async def evaluate(self, candidate: Candidate, on_stage: Callable[[str], None]) -> Trial:
        if self.calls + 1 == self._at:
            raise self._error
        return await super().evaluate(candidate, on_stage)


@pytest.mark.parametrize("error", [JudgeDied("it died"), ReferenceInvalid("it does not run")])
def test_where_the_judge_fails_what_was_asked_is_kept_and_nothing_more_is_sent(
    ledger: Ledger, error: AgentgenError
) -> None:
    """Sixteen ideas: eight are under way when the first candidate meets the judge."""
    titles = [f"{title} {kind}" for title in TITLES for kind in ("rows", "columns")]

    def answer(request: ChatRequest) -> Answer:
        return ideas_json(*titles) if request.role is Role.IDEAS else eight(request)

    model = SlowModel(answer)
    plan = EIGHT.model_copy(update={"ideas": 16})
    with pytest.raises(type(error)):
        go(ledger, model, FailingJudge(error, at=1), plan)
    assert model.cut == 0
    assert len(model.requests) <= 1 + 8 + 8
    stored = [exchange for exchange in ledger.exchanges("run-1") if exchange.reply]
    assert len(stored) == len(model.requests), "each answer is there"
    assert ledger.run("run-1").status is RunStatus.STOPPED
    again = SlowModel(answer)
    assert go(ledger, again, ReplayJudge(), plan) == DONE
    assert len(again.requests) + len(model.requests) == 17


def test_where_a_model_gives_up_the_others_come_to_their_end(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.WRITE and "**Tiles**" in request.prompt:
            return ModelUnavailable("no more")
        return eight(request)

    model = SlowModel(answer)
    with pytest.raises(ModelUnavailable, match="no more"):
        go(ledger, model, ReplayJudge(), EIGHT)
    assert model.cut == 0
    assert len(told(ledger)) == 7


def test_a_prompt_that_is_refused_ends_its_branch_alone(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.WRITE and "**Tiles**" in request.prompt:
            return PromptRefused("too long for the model's context")
        return eight(request)

    assert go(ledger, SlowModel(answer), ReplayJudge(), EIGHT) == DONE
    assert len(told(ledger)) == 7
    assert list(ledger.ended("run-1").values()) == ["too long for the model's context"]


def test_whose_answer_could_not_be_used_is_asked_again(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        return eight(request) if request.attempt else "I have none."

    models = ScriptedModel(answer), ScriptedModel(answer)
    ledger.create_run(make_run(EIGHT))
    assert run_search(ledger.run("run-1"), ledger, Roster.of(*models), ReplayJudge(), ignore) == DONE
    for model in models:
        first, again = ({one.first_id for one in model.requests if one.attempt == nth} for nth in (0, 1))
        assert first == again
        assert first
    told_of = {letter.id: letter.first_id for letter in ledger.letters("run-1")}
    assert told_of == {one.id: one.first_id for model in models for one in model.requests}


class Unwritable(SlowModel):
    """Cannot be told that an answer was of no use."""

    def refuse(self, request: ChatRequest, reason: str) -> None:
        raise ModelUnavailable("the mailbox cannot be used")


def test_a_model_that_cannot_be_told_gives_up_like_any_other(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        return "Never." if request.role is Role.WRITE and "**Wide**" in request.prompt else eight(request)

    model = Unwritable(answer)
    with pytest.raises(ModelUnavailable, match="cannot be used"):
        go(ledger, model, ReplayJudge(), EIGHT)
    assert model.cut == 0
    assert len(told(ledger)) == 7


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_run_that_is_done_asks_nothing_however_often_it_is_gone_on_with(ledger: Ledger, strategy: Strategy) -> None:
    """The second round leads nowhere: its answers are of no use, or known."""

    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.REFINE:
            return fenced(source_text("1.10"))
        if request.role is Role.IDEAS and (request.parent != ROOT or request.nth):
            return "I have none."
        return script(request)

    plan = Plan(strategy=strategy, rounds=4, parents=2, ideas=3, next_ideas=2, rewrites=0)
    assert go(ledger, ScriptedModel(answer), ReplayJudge(), plan) == DONE
    for _ in range(3):
        model = ScriptedModel(answer)
        assert go(ledger, model, ReplayJudge(), plan) == DONE
        assert not model.requests


@pytest.mark.parametrize(("strategy", "rounds"), [(Strategy.REFINE, 5), (Strategy.BEST_OF_N, 3)])
def test_one_answer_of_no_use_does_not_end_what_has_one_thing_to_grow_from(
    ledger: Ledger, strategy: Strategy, rounds: int
) -> None:
    answers = iter(["1.10", "1.10", "1.20", "1.20", "1.30"])
    titles = iter([("Wide", "Tiles", "Threads"), (), (), (), ("Unroll",)])

    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.REFINE:
            return fenced(source_text(next(answers)))
        if request.role is Role.IDEAS:
            return ideas_json(*next(titles))
        return script(request)

    plan = Plan(strategy=strategy, rounds=rounds, ideas=3, rewrites=0)
    assert go(ledger, ScriptedModel(answer), ReplayJudge(), plan) == DONE
    made = {row.round for row in ledger.candidates("run-1")}
    assert made == ({1, 3, 5} if strategy is Strategy.REFINE else {1, 3})


def test_a_round_with_an_open_candidate_is_walked_through_again(ledger: Ledger) -> None:
    """As a merge with a copy that went further leaves it: settled there, open here."""
    run = make_run(Plan(rounds=2, parents=1, ideas=2, next_ideas=1, repairs=0, rewrites=0))
    ledger.create_run(run)
    ledger.set_target(run.id, TARGET)
    search(ledger, ScriptedModel(script), ReplayJudge(away=True))
    ledger.set_settled(run.id, 2)
    judge = ReplayJudge()
    assert go(ledger, ScriptedModel(script), judge, run.plan) == DONE
    assert {row.candidate.id for row in ledger.candidates("run-1")} == set(judge.evaluated)


def test_what_requests_of_before_grew_from_is_found_by_walking(ledger: Ledger) -> None:
    """Their rounds are not known: a run of then that waits in its second round asks for no other parent there."""
    plan = Plan(rounds=2, parents=1, ideas=3, next_ideas=2, rewrites=0)

    def waits(request: ChatRequest) -> Answer:
        late = request.role is Role.WRITE and "Unroll" in request.prompt
        return ReplyPending("nobody answered yet") if late else script(request)

    class Of(ScriptedModel):
        async def ask(self, request: ChatRequest) -> ChatReply:
            ledger.add_request("run-1", request.model_copy(update={"round": 0}))
            return await super().ask(request)

    ledger.create_run(make_run(plan))
    asker = Of(waits)
    assert go(ledger, asker, ReplayJudge(), plan).status is RunStatus.WAITING
    for _ in range(2):
        model = ScriptedModel(waits)
        assert go(ledger, model, ReplayJudge(), plan).status is RunStatus.WAITING
        assert {request.role for request in model.requests} == {Role.WRITE}
    assert go(ledger, ScriptedModel(script), ReplayJudge(), plan) == DONE
    assert len([row for row in ledger.ideas("run-1") if row.round == 2]) == 2


def test_an_idea_stays_what_it_was_taken_for(ledger: Ledger) -> None:
    """Of a run from before near-duplicates were known: both were asked for, so both are gone on with."""
    plan = Plan(rounds=1, ideas=2, repairs=0, rewrites=0)
    ledger.create_run(make_run(plan))
    tree = Tree.read(ledger, ledger.run("run-1"))
    first, second = make_idea(ROOT, "Read wider vectors"), make_idea(ROOT, "Wider vectors, read")
    assert known_as(second, tree, None, [first]) == first
    for one in (first, second):
        tree.add_idea(1, one)
        tree.add_candidate(1, make_candidate(source_text("1.3"), one))

    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.IDEAS:
            return (
                '{"ideas": ['
                + ", ".join(
                    f'{{"category": "memory access", "title": "{one.title}", "reasoning": "{one.reasoning}"}}'
                    for one in (first, second)
                )
                + "]}"
            )
        return fenced(source_text("1.3"))

    judge = ReplayJudge()
    assert go(ledger, ScriptedModel(answer), judge, plan) == DONE
    assert len(judge.evaluated) == 2


def test_titles_in_any_script_are_told_apart() -> None:
    run = make_run(Plan())
    first, second = make_idea(PROBLEM.root(run.arithmetic), "融合内存访问"), make_idea(ROOT, "使用更多寄存器")
    assert not repeats(first, second)
    assert not repeats(make_idea(ROOT, "→ ⇒"), make_idea(ROOT, "++ --"))
    assert repeats(first, first)


def test_a_view_ends_where_it_ends(ledger: Ledger) -> None:
    run = make_run(Plan())
    ledger.create_run(run)
    tree = Tree.read(ledger, run)
    candidate = make_candidate(source_text("1.3"), make_idea(ROOT))
    tree.add_candidate(5, candidate)
    tree.add_trial(passed(candidate, 1.3))
    assert list(tree.before(4).rounds) == [1, 2, 3]
    assert not list(tree.before(4).nodes)
    assert list(tree.of_round(7)) == []
    assert list(tree.rounds) == [1, 2, 3, 4, 5]


def test_events_of_settled_rounds_come_at_once(ledger: Ledger) -> None:
    seen: list[events.Event] = []
    search(ledger, ScriptedModel(script), ReplayJudge())
    search(ledger, ScriptedModel(script), ReplayJudge(), watch=seen.append)
    assert [type(event) for event in seen] == [events.Recalled, events.RunEnded]
