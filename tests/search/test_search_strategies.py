"""Strategies: what a round grows from, given what came before and what leads nowhere."""

from __future__ import annotations

import math

import pytest
from search_factories import (
    PROBLEM,
    TARGET,
    Answer,
    ReplayJudge,
    ScriptedModel,
    ideas_json,
    make_candidate,
    make_idea,
    make_run,
    passed,
    source_text,
)
from search_script import DONE, ignore, script, told

from agentgen.errors import NothingRecorded
from agentgen.models.roster import Roster
from agentgen.records import events
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.run import Plan, Strategy
from agentgen.search.enough import enough
from agentgen.search.history import steps
from agentgen.search.loop import run_search
from agentgen.search.strategies import Growth, best_first, best_of_n, ideas_tree, refine, weights
from agentgen.search.tree import Tree
from agentgen.store.ledger import Ledger

PLAN = Plan(rounds=4, parents=2, ideas=3, next_ideas=2, repairs=0, rewrites=0)
ROOT = Growth(None, 0, 3)


def tree_of(ledger: Ledger, *ratios: float, plan: Plan = PLAN, rounds: int = 1) -> tuple[Tree, list[str]]:
    """Returns a tree with a candidate of each speedup, spread evenly over rounds, and their ids."""
    run = make_run(plan)
    ledger.create_run(run)
    tree = Tree.read(ledger, run)
    ids: list[str] = []
    for place, ratio in enumerate(ratios):
        idea = make_idea(PROBLEM.root(run.arithmetic), f"Idea number {place}")
        candidate = make_candidate(source_text(f"{ratio}"), idea)
        number = 1 + place * rounds // len(ratios)
        tree.add_idea(number, idea)
        tree.add_candidate(number, candidate)
        tree.add_trial(passed(candidate, ratio))
        ids.append(candidate.id)
    return tree, ids


def test_every_strategy_but_refining_begins_with_ideas_on_the_reference(ledger: Ledger) -> None:
    tree, _ = tree_of(ledger)
    assert ideas_tree(tree, (), ()) == best_first(tree, (), ()) == best_of_n(tree, (), ()) == (ROOT,)
    assert refine(tree, (), ()) == (Growth(None, 0, 0),)


def test_the_tree_of_ideas_grows_from_each_kernel_once_the_best_first(ledger: Ledger) -> None:
    tree, (slow, fast, middle) = tree_of(ledger, 1.0, 3.0, 2.0)
    first = ideas_tree(tree, [ROOT], ())
    assert first == (Growth(fast, 0, 2), Growth(middle, 0, 2))
    assert ideas_tree(tree, [ROOT, *first], ()) == (Growth(slow, 0, 2),)
    assert ideas_tree(tree, [ROOT, *first, Growth(slow, 0, 2)], ()) == ()


def test_what_leads_nowhere_makes_room_for_the_next_best(ledger: Ledger) -> None:
    tree, (slow, fast, middle) = tree_of(ledger, 1.0, 3.0, 2.0)
    dead = Growth(fast, 0, 2)
    assert ideas_tree(tree, [ROOT], [dead]) == (dead, Growth(middle, 0, 2), Growth(slow, 0, 2))
    assert best_first(tree, [ROOT], [dead]) == (dead, Growth(middle, 0, 2), Growth(slow, 0, 2))


def test_best_first_takes_a_kernel_again_until_others_weigh_more(ledger: Ledger) -> None:
    tree, (_, fast, middle) = tree_of(ledger, 1.0, 3.0, 2.0)
    assert best_first(tree, [ROOT], ()) == (Growth(fast, 0, 2), Growth(middle, 0, 2))
    once = [ROOT, Growth(fast, 0, 2)]
    # The median weighs 0.5, the best one 0.99995 and after one time half of that.
    assert best_first(tree, once, ()) == (Growth(middle, 0, 2), Growth(fast, 1, 2))
    both = [*once, Growth(middle, 0, 2), Growth(fast, 1, 2)]
    assert best_first(tree, both, ()) == (Growth(fast, 2, 2), Growth(middle, 1, 2))


def test_weights_are_those_of_the_formula(ledger: Ledger) -> None:
    """Lower ends 0.99, 1.98, 2.97: median 1.98, MAD 0.99, so one kernel lies one MAD above and one below."""
    tree, (slow, fast, middle) = tree_of(ledger, 1.0, 3.0, 2.0)
    found = weights(list(tree.nodes), {fast: 3})
    assert found[middle] == pytest.approx(0.5)
    assert found[fast] == pytest.approx(1 / (1 + math.exp(-10)) / 4)
    assert found[slow] == pytest.approx(1 / (1 + math.exp(10)))


def test_weights_of_equal_and_of_no_kernels(ledger: Ledger) -> None:
    tree, ids = tree_of(ledger, 2.0, 2.0)
    assert weights(list(tree.nodes), {}) == dict.fromkeys(ids, 0.5)
    assert weights([], {}) == {}


def test_refining_goes_on_with_the_fastest_program(ledger: Ledger) -> None:
    tree, (_, fast) = tree_of(ledger, 1.0, 3.0)
    step = Growth(fast, 0, 0)
    assert refine(tree, [Growth(None, 0, 0)], ()) == (step,)
    assert refine(tree, [Growth(None, 0, 0), step], ()) == (Growth(fast, 1, 0),)
    assert refine(tree, [Growth(None, 0, 0)], [step]) == (step,), "nothing else can take its place"


def carry_out(ledger: Ledger, model: ScriptedModel, strategy: Strategy, rounds: int = 3) -> list[events.Event]:
    """Searches by a strategy; returns what was told."""
    seen: list[events.Event] = []
    ledger.create_run(make_run(PLAN.model_copy(update={"strategy": strategy, "rounds": rounds})))
    assert run_search(ledger.run("run-1"), ledger, Roster.of(model), ReplayJudge(), seen.append) == DONE
    return seen


def test_a_run_of_refining_is_one_line_of_programs(ledger: Ledger) -> None:
    model = ScriptedModel(script)
    carry_out(ledger, model, Strategy.REFINE, rounds=4)
    assert {request.role for request in model.requests} == {Role.REFINE}
    assert [(row.round, row.candidate.idea) for row in ledger.candidates("run-1")] == [(n, None) for n in range(1, 5)]
    parents = [row.candidate.parent for row in ledger.candidates("run-1")]
    assert parents == [None, *(row.candidate.id for row in ledger.candidates("run-1"))][:4], "each beats the one before"
    last = model.requests[-1].prompt
    assert "- program 3, made from program 2 [the one above]: 1.02x, 627.9 us" in last
    assert "- program 1, made from the reference: 1.00x, 640.5 us" in last


def test_the_same_program_again_ends_that_step_only(ledger: Ledger) -> None:
    answers = iter(["1.10", "1.10", "1.30"])

    def answer(request: ChatRequest) -> str:
        return f"```python\n{source_text(next(answers))}```"

    carry_out(ledger, ScriptedModel(answer), Strategy.REFINE, rounds=2)
    (reason,) = ledger.ended("run-1").values()
    assert reason.startswith("the answer is the source that was evaluated as")


def test_a_run_of_best_of_n_asks_for_other_ideas_on_the_reference_each_round(ledger: Ledger) -> None:
    titles = iter([("Wide vectors", "Tiles", "Threads"), ("Unroll", "Prefetch"), ("Vectors, wide", "Cache")])

    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.IDEAS:
            return ideas_json(*next(titles))
        return f"```python\n{source_text('1.5')}# {request.parent}\n```"

    model = ScriptedModel(answer)
    carry_out(ledger, model, Strategy.BEST_OF_N)
    assert [request.nth for request in model.asked(Role.IDEAS)] == [0, 1, 2]
    assert {row[3] for row in told(ledger)} == {"-"}
    known = [row.idea for row in ledger.ideas("run-1") if row.idea.same_as]
    assert [idea.title for idea in known] == ["Vectors, wide"], "named again, and not implemented again"
    assert len(told(ledger)) == 6


def test_a_resumed_run_of_any_strategy_chooses_as_if_it_had_not_stopped(ledger: Ledger) -> None:
    """Stopped by a mailbox after each round, so that what rounds grew from is read back."""
    for strategy in (Strategy.IDEAS_TREE, Strategy.BEST_FIRST):
        run = make_run(PLAN.model_copy(update={"strategy": strategy}), run_id=f"whole-{strategy.value}")
        ledger.create_run(run)
        whole = ScriptedModel(script)
        assert run_search(run, ledger, Roster.of(whole), ReplayJudge(), ignore) == DONE
        parts = run.model_copy(update={"id": f"parts-{strategy.value}"})
        ledger.create_run(parts)
        asked: list[str] = []
        for rounds in (1, 2, 3, 4):
            plan = parts.plan.model_copy(update={"rounds": rounds})
            model = ScriptedModel(script)
            now = ledger.run(parts.id).model_copy(update={"plan": plan})
            assert run_search(now, ledger, Roster.of(model), ReplayJudge(), ignore) == DONE
            asked += [request.id for request in model.requests]
        assert asked == [request.id for request in whole.requests]


def test_a_kernel_near_its_bound_is_enough(ledger: Ledger) -> None:
    """209.8 us of 640.5 us is the bound: 2.9 times as fast is 95% of it."""
    tree, _ = tree_of(ledger, 2.8)
    assert enough(tree, TARGET) is None
    candidate = make_candidate(source_text("2.95"))
    tree.add_candidate(2, candidate)
    tree.add_trial(passed(candidate, 2.95))
    assert enough(tree, TARGET) == "a kernel reaches 97% of its roofline bound"
    assert enough(tree.before(2), TARGET) is None
    computes = TARGET.model_copy(update={"bound_by": "compute"})
    assert enough(tree, computes) is None, "another algorithm may need fewer operations"


def test_a_kernel_near_its_bound_is_not_enough_where_the_best_baseline_is_as_near(ledger: Ledger) -> None:
    tree, _ = tree_of(ledger, 1.5)
    candidate = make_candidate(source_text("1.01"))
    tree.add_candidate(2, candidate)
    tree.add_trial(passed(candidate, 1.01).model_copy(update={"roofline_fraction": 0.98}))
    assert enough(tree, TARGET) is None


@pytest.mark.parametrize(("last", "ends"), [(1.29, True), (1.30, True), (1.335, True), (1.34, False)])
def test_rounds_without_a_faster_kernel_are_enough(ledger: Ledger, last: float, ends: bool) -> None:
    """Intervals are 1% to each side. That of 1.30 ends at 1.313, with the margin at 1.326; that of 1.335 begins at
    1.322, that of 1.34 at 1.327."""
    ratios = [1.30, *[1.2] * 4, *[1.1] * 5, *[1.0] * 4, last, 1.0]
    tree, _ = tree_of(ledger, *ratios, rounds=4)
    assert (enough(tree, TARGET) is not None) is ends
    assert enough(tree.before(4), TARGET) is None, "three rounds are not yet four"


def test_few_candidates_are_no_dry_rounds(ledger: Ledger) -> None:
    tree, _ = tree_of(ledger, *[1.3, 1.2, 1.1, 1.0] * 2, rounds=4)
    assert enough(tree, TARGET) is None


def test_the_end_is_told(ledger: Ledger) -> None:
    def near(request: ChatRequest) -> str:
        text = script(request)
        assert isinstance(text, str)
        return text.replace("1.30", "3.00")

    seen = carry_out(ledger, ScriptedModel(near), Strategy.IDEAS_TREE)
    assert seen[-2] == events.Enough("a kernel reaches 98% of its roofline bound")
    assert ledger.run("run-1").settled == 1
    assert TARGET.bound_us == 209.8


def test_nothing_recorded_for_a_whole_round_ends_the_run(ledger: Ledger) -> None:
    def recorded(request: ChatRequest) -> Answer:
        on_root = request.parent == PROBLEM.root(make_run(PLAN).arithmetic)
        return script(request) if request.role is not Role.IDEAS or on_root else NothingRecorded("no more")

    seen = carry_out(ledger, ScriptedModel(recorded), Strategy.IDEAS_TREE)
    assert [event.round for event in seen if isinstance(event, events.RoundStarted)] == [1, 2]
    assert len([event for event in seen if isinstance(event, events.BranchEnded)]) == 2


def test_the_history_of_refining_shows_what_each_program_changed(ledger: Ledger) -> None:
    tree, _ = tree_of(ledger)
    for head in ("# Change: tiles of  64,\tfewer loads." + "x" * 300, "import torch\n# Change: too late", "# Change:"):
        tree.add_candidate(1, make_candidate(f"# judge: 1.5\n{head}\nimport torch\n"))
    first, second, third = steps(tree, None).split("\n")
    assert first.endswith(". Change: tiles of 64, fewer loads." + "x" * 135)
    assert "Change" not in second + third
