"""Ideas as things of their own: known again, implemented anew, judged by what they promised, offered elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from search_factories import (
    PROBLEM,
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
    untimed,
)
from search_script import DONE, idea_title, script, search, told

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.idea import Category, Gain, Idea
from agentgen.records.run import Plan, Run, Strategy
from agentgen.records.trial import Outcome
from agentgen.search.elsewhere import operations, won_elsewhere
from agentgen.search.history import fate, fate_line, history
from agentgen.search.known import known_as, repeats
from agentgen.search.tree import Tree
from agentgen.store.ledger import Ledger

ROOT = PROBLEM.root(make_run(Plan()).arithmetic)


def idea(title: str, parent: str = ROOT, category: Category = Category.MEMORY_ACCESS) -> Idea:
    return Idea(parent=parent, category=category, title=title, reasoning="It waits.", predicted_speedup=1.5)


@pytest.mark.parametrize(
    ("title", "other", "same"),
    [
        ("Read wider vectors", "Wider vectors, read", True),
        ("Read wider vectors", "Reading wider vectors", True),
        ("Tiles of 64 by 64 in shared memory", "Tiles of 64 by 32 in shared memory", True),
        ("Tiles in shared memory", "Tiles in registers", False),
        ("Split the reduction over blocks", "One block a row, persistent", False),
        ("Read wider vectors", "Read rows ahead with cp.async", False),
    ],
)
def test_titles_that_say_the_same(title: str, other: str, same: bool) -> None:
    assert repeats(idea(title), idea(other)) is same
    assert repeats(idea(other), idea(title)) is same
    assert not repeats(idea(title), idea(title, category=Category.CONTROL_FLOW))


def test_an_idea_is_known_on_the_same_kernel_and_in_the_kernels_own_line_only(ledger: Ledger) -> None:
    run = make_run(Plan())
    ledger.create_run(run)
    tree = Tree.read(ledger, run)
    wide, tiles = idea("Read wider vectors"), idea("Tiles in shared memory")
    first, second = make_candidate(source_text("1.3"), wide), make_candidate(source_text("1.2"), tiles)
    for one in (wide, tiles):
        tree.add_idea(1, one)
    for one in (first, second):
        tree.add_candidate(1, one)
        tree.add_trial(passed(one, 1.3))
    before = tree.before(2)
    node = before.node(first.id)
    assert known_as(idea("Wider vectors, read"), before, None, ()) == wide
    assert known_as(idea("Wider vectors, read", first.id), before, node, ()) == wide, "it is in the kernel"
    assert known_as(idea("Tiles in shared memory", first.id), before, node, ()) is None, "another kernel's"
    fresh = idea("Prefetch the next row", first.id)
    assert known_as(idea("Prefetching the next rows", first.id), before, node, [fresh]) == fresh
    tree.add_idea(2, fresh)
    assert known_as(fresh, before, node, ()) is None, "a round that is walked again does not know its own ideas"
    assert known_as(fresh, tree.before(3), node, ()) == fresh


def test_near_duplicates_are_kept_and_told_and_not_implemented(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.IDEAS:
            return ideas_json("Wide", "Tiles of shared memory", "Shared memory tiles")
        return fenced(source_text("1.30" if idea_title(request) == "Wide" else "1.10"))

    plan = Plan(rounds=2, parents=1, ideas=3, next_ideas=3, rewrites=0)
    model = ScriptedModel(answer)
    assert search(ledger, model, ReplayJudge(), plan=plan) == DONE
    known = {(row.round, row.idea.title) for row in ledger.ideas("run-1") if row.idea.same_as}
    assert known == {(1, "Shared memory tiles"), (2, "Wide"), (2, "Shared memory tiles")}
    tiles = "Tiles of shared memory"
    assert [row[:2] for row in told(ledger)] == [(1, "Wide"), (1, tiles), (2, tiles)]
    later = model.asked(Role.IDEAS)[1].prompt
    assert "**Shared memory tiles** (memory access; on the reference): known already" in later


def test_an_idea_that_failed_may_come_once_more_on_the_same_kernel(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.IDEAS:
            return ideas_json("Wide", "Tiles").replace("Wide, for", f"Try {request.nth}, for")
        return fenced(source_text("CRASHED" if idea_title(request) == "Wide" else "1.10"))

    plan = Plan(strategy=Strategy.BEST_OF_N, rounds=4, ideas=2, repairs=0, rewrites=0)
    model = ScriptedModel(answer)
    assert search(ledger, model, ReplayJudge(), plan=plan) == DONE
    assert [row[:2] for row in told(ledger)] == [(1, "Wide"), (1, "Tiles"), (2, "Wide")]
    assert [row.round for row in ledger.ideas("run-1") if row.idea.title == "Wide" and row.idea.same_as] == [3, 4]
    assert "may come once more" in model.asked(Role.IDEAS)[0].prompt
    again = ScriptedModel(answer)
    assert search(ledger, again, ReplayJudge(), plan=plan) == DONE
    assert not again.requests


@pytest.mark.parametrize(
    ("outcomes", "known"),
    [
        ((), True),
        ((Outcome.CRASHED,), False),
        ((Outcome.CRASHED, Outcome.WRONG_VALUES), False),
        ((Outcome.CRASHED, Outcome.PASSED), True),
        ((Outcome.CRASHED, Outcome.NOT_RUN), True),
    ],
)
def test_only_what_was_tried_and_failed_may_come_again(
    ledger: Ledger, outcomes: tuple[Outcome, ...], known: bool
) -> None:
    run = make_run(Plan())
    ledger.create_run(run)
    tree = Tree.read(ledger, run)
    first, named = idea("Read wider vectors"), idea("Reading wider vectors")
    tree.add_idea(1, first)
    tree.add_idea(2, named.model_copy(update={"same_as": first.id}))  # as it was taken for before ideas came again
    for place, outcome in enumerate(outcomes):
        candidate = make_candidate(source_text(f"{place}"), first)
        tree.add_candidate(1, candidate)
        tree.add_trial(untimed(candidate, outcome))
    once_more = idea("Wider vectors, read")
    before = tree.before(3)
    assert known_as(once_more, before, None, ()) == (first if known else None)
    assert known_as(first, before, None, ()) == first, "in the very same words nothing is put right"
    assert known_as(idea("Wider vectors read"), before, None, [once_more]) == (first if known else once_more)


def rewriting(*verdicts: str) -> tuple[ScriptedModel, ReplayJudge]:
    """Returns a model with one idea, whose code comes to these verdicts one after the other, and a judge."""
    left = iter(verdicts)

    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.IDEAS:
            return ideas_json("Wide")
        return fenced(source_text(next(left)) + f"# {request.id}\n")

    return ScriptedModel(answer), ReplayJudge()


def test_an_idea_survives_the_failure_of_its_code(ledger: Ledger) -> None:
    """Two repairs come to nothing, so it is written anew and told what failed; that one is repaired and passes."""
    model, judge = rewriting("CRASHED", "CRASHED", "WRONG_VALUES", "BUILD_FAILED", "1.40")
    plan = Plan(rounds=1, ideas=1, repairs=2, rewrites=1)
    assert search(ledger, model, judge, plan=plan) == DONE
    assert [row[1:5:3] for row in told(ledger)] == [
        ("Wide", "CRASHED"),
        ("Wide'", "CRASHED"),
        ("Wide''", "WRONG_VALUES"),
        ("Wide", "BUILD_FAILED"),
        ("Wide'", 1.4),
    ]
    first, again = model.asked(Role.WRITE)
    assert (first.nth, again.nth) == (0, 1)
    assert first.parent == again.parent
    assert "# What was tried before" not in first.prompt
    assert again.prompt.startswith(first.prompt)
    assert "- WRONG_VALUES: it ended WRONG_VALUES" in again.prompt
    assert again.prompt.count("- CRASHED: ") == 2


def test_an_idea_is_abandoned_with_the_reason_when_no_implementation_is_left(ledger: Ledger) -> None:
    model, judge = rewriting("CRASHED", "CRASHED", "TIMED_OUT", "WRONG_VALUES")
    plan = Plan(rounds=1, ideas=1, repairs=1, rewrites=1)
    assert search(ledger, model, judge, plan=plan) == DONE
    tree = Tree.read(ledger, ledger.run("run-1"))
    (row,) = tree.ideas
    found = fate(tree, row.idea)
    assert found.best is None
    assert found.failure
    assert found.failure.reason == "it ended WRONG_VALUES"
    assert fate_line(tree, row.idea) == "predicted 1.5x, abandoned after 4 tries"
    assert "abandoned after 4 tries; cpp: WRONG_VALUES: it ended WRONG_VALUES" in history(tree, None)
    again = ScriptedModel(script)
    assert search(ledger, again, judge, plan=plan) == DONE
    assert not again.requests


def test_the_same_source_written_anew_ends_the_idea_there(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        return ideas_json("Wide") if request.role is Role.IDEAS else fenced(source_text("CRASHED"))

    model = ScriptedModel(answer)
    plan = Plan(rounds=1, ideas=1, repairs=0, rewrites=3)
    assert search(ledger, model, ReplayJudge(), plan=plan) == DONE
    assert len(model.asked(Role.WRITE)) == 2
    (reason,) = ledger.ended("run-1").values()
    assert reason.startswith("the answer is the source that was evaluated as")
    again = ScriptedModel(answer)
    assert search(ledger, again, ReplayJudge(), plan=plan) == DONE
    assert not again.requests


def test_each_language_goes_its_own_way(ledger: Ledger) -> None:
    def answer(request: ChatRequest) -> Answer:
        if request.role is Role.IDEAS:
            return ideas_json("Wide")
        good = request.target == "cuda" or request.nth
        return fenced(source_text("1.40" if good else "CRASHED") + f"# {request.id}\n")

    languages = (Language.TRITON, Language.CUDA)
    plan = Plan(rounds=1, ideas=1, repairs=1, rewrites=1)
    assert search(ledger, ScriptedModel(answer), ReplayJudge(), plan=plan, languages=languages) == DONE
    rows = [row[1:] for row in told(ledger)]
    assert [row for row in rows if row[1] == "cuda"] == [("Wide", "cuda", "-", 1.4)]
    assert [row[-1] for row in rows if row[1] == "triton"] == ["CRASHED", "CRASHED", 1.4]


def figures(gain: Gain | None) -> tuple[float, float, float]:
    assert gain
    return gain.ratio, gain.low, gain.high


def test_a_gain_is_over_the_kernel_that_the_idea_was_had_on(ledger: Ledger) -> None:
    """1.3 [1.287, 1.313] over the baseline, then 1.56 [1.5444, 1.5756]: 1.2, from 1.5444/1.313 to 1.5756/1.287."""
    run = make_run(Plan())
    ledger.create_run(run)
    tree = Tree.read(ledger, run)
    wide = idea("Read wider vectors")
    first = make_candidate(source_text("1.3"), wide)
    tiles = idea("Tiles in shared memory", first.id)
    better = Candidate(source=source_text("1.56"), language=Language.CPP, idea=tiles.id, parent=first.id)
    worse = Candidate(source=source_text("1.0"), language=Language.CPP, idea=tiles.id, parent=first.id)
    for one in (wide, tiles):
        tree.add_idea(1, one)
    for one, ratio in ((first, 1.3), (better, 1.56), (worse, 1.0)):
        tree.add_candidate(1, one)
        tree.add_trial(passed(one, ratio))
    assert figures(fate(tree, wide).gain) == pytest.approx((1.3, 1.287, 1.313))
    assert figures(fate(tree, tiles).gain) == pytest.approx((1.2, 1.17624, 1.22424), abs=1e-4)
    assert fate_line(tree, tiles) == "predicted 1.5x, reached 1.20x [1.18, 1.22]"
    assert fate_line(tree, idea("Never written")) == "predicted 1.5x, no code"


def test_what_only_passed_has_no_gain(ledger: Ledger) -> None:
    run = make_run(Plan())
    ledger.create_run(run)
    tree = Tree.read(ledger, run)
    wide = idea("Read wider vectors")
    candidate = make_candidate(source_text("pass"), wide)
    tree.add_idea(1, wide)
    tree.add_candidate(1, candidate)
    tree.add_trial(untimed(candidate))
    assert fate_line(tree, wide) == "predicted 1.5x, not timed"


def other_run(ledger: Ledger, name: str, reference: str, day: int, found: dict[str, str]) -> None:
    """Keeps a run on another problem, of a day of the month, whose ideas came to these verdicts."""
    problem = PROBLEM.model_copy(update={"name": name, "title": f"The problem {name}", "reference": reference})
    created = datetime(2026, 11, day, tzinfo=UTC)
    run: Run = make_run(Plan(), run_id=f"run-{name}").model_copy(update={"problem": problem, "created": created})
    ledger.create_run(run)
    tree = Tree.read(ledger, run)
    for title, verdict in found.items():
        one = make_idea(title=title)
        candidate = make_candidate(source_text(verdict), one)
        tree.add_idea(1, one)
        tree.add_candidate(1, candidate)
        failed = verdict in Outcome.__members__
        tree.add_trial(untimed(candidate, Outcome(verdict)) if failed else passed(candidate, float(verdict)))


def test_ideas_that_won_on_related_problems_are_offered(ledger: Ledger) -> None:
    mine = PROBLEM.model_copy(update={"reference": "x = F.conv2d(a, b)\n"})
    run = make_run(Plan(rounds=1, ideas=1)).model_copy(update={"problem": mine})
    found = {"Wide": "1.30", "Tiles": "1.80", "Slow": "0.90", "Noise": "1.005", "Even": "1.015", "Broken": "CRASHED"}
    other_run(ledger, "pooled", "self.conv = nn.Conv2d(3, 8, 3)\n", 20, found)
    other_run(ledger, "softmax", "F.softmax(x, -1)\n", 20, {"Online": "2.00"})
    other_run(ledger, "later", "F.conv2d(a, b)\n", 22, {"Future": "3.00"})
    ledger.create_run(run)
    told_of = won_elsewhere(ledger, run)
    assert told_of.splitlines() == [
        "- **Tiles** (memory access): 1.80x [1.78, 1.82] on The problem pooled, in cpp",
        "- **Wide** (memory access): 1.30x [1.29, 1.31] on The problem pooled, in cpp",
    ]


def test_operations_are_known_by_whatever_name() -> None:
    assert operations("nn.Conv2d(1, 2, 3)\nF.max_pool2d(x, 2)\ntorch.nn.functional.relu(x)\ntorch.float16") == {
        "conv2d",
        "maxpool2d",
        "relu",
    }
