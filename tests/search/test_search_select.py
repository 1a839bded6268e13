from __future__ import annotations

import random

from search_factories import make_candidate, make_idea, passed, untimed

from agentgen.records.candidate import Language
from agentgen.records.idea import Idea
from agentgen.records.score import Score
from agentgen.records.trial import Outcome
from agentgen.search.select import beats, eligible, in_reach, leader, next_parent
from agentgen.search.tree import Node

A, B, C = (make_idea(title=f"Idea {letter}") for letter in "ABC")


def node(
    name: str,
    idea: Idea,
    ratio: float,
    low: float | None = None,
    high: float | None = None,
    language: Language = Language.TRITON,
) -> Node:
    candidate = make_candidate(f"# {name}\n", idea, language)
    return Node(1, candidate, Score.of(passed(candidate, ratio, low, high)))


def without_time(name: str, outcome: Outcome = Outcome.PASSED) -> Node:
    candidate = make_candidate(f"# {name}\n", A)
    return Node(1, candidate, Score.of(untimed(candidate, outcome)))


def order(nodes: list[Node]) -> list[Node]:
    chosen: list[Node] = []
    while parent := next_parent([one for one in eligible(nodes) if one not in chosen], chosen):
        chosen.append(parent)
    return chosen


def test_clear_differences_are_ranked_by_the_lower_end() -> None:
    slow, fast, middle = node("slow", A, 1.0), node("fast", A, 3.0), node("middle", A, 2.0)
    assert order([slow, fast, middle]) == [fast, middle, slow]


def test_a_wide_interval_earns_nothing() -> None:
    lucky = node("lucky", A, 3.0, low=1.0, high=5.0)
    steady = node("steady", B, 2.0)
    assert eligible([lucky, steady]) == [lucky, steady]
    # The lucky one ties with the steady one (its interval reaches above), so its lower median decides.
    assert leader([lucky, steady]) == lucky
    # With an interval that ends below the leader's, it is no tie.
    assert leader([node("lucky", A, 3.0, low=1.0, high=1.9), steady]) == steady


def test_among_ties_another_idea_and_another_language_come_first() -> None:
    first = node("first", A, 2.02)
    same = node("same", A, 2.01)
    other_language = node("cuda", A, 2.00, language=Language.CUDA)
    other_both = node("both", B, 1.99, language=Language.CUDA)
    assert order([same, other_language, other_both, first]) == [first, other_both, same, other_language]


def test_intervals_that_touch_are_a_tie() -> None:
    first, same, other = node("first", A, 4.0), node("same", A, 2.1, low=2.0), node("other", B, 1.9, high=2.0)
    assert order([first, same, other]) == [first, other, same]


def test_no_tie_no_diversity() -> None:
    first, same, other = node("first", A, 3.0), node("same", A, 2.9, low=2.8, high=3.0), node("other", B, 1.5)
    assert order([first, same, other]) == [first, same, other]


def test_what_identical_code_differs_by_is_a_tie_and_no_gain() -> None:
    """Intervals of 0.1% to each side, 0.4% apart: between processes, 1% is seen of the same code."""
    first, same, other = (
        node(name, idea, ratio, ratio * 0.999, ratio * 1.001)
        for name, idea, ratio in (("first", A, 2.008), ("same", A, 2.004), ("other", B, 2.0))
    )
    assert order([first, same, other]) == [first, other, same]
    assert not beats(first, other)
    assert list(in_reach([first, other], 1)) == [first, other]
    faster = node("faster", A, 2.03, 2.028, 2.032)
    assert beats(faster, other)
    assert list(in_reach([faster, other], 1)) == [faster]


def test_the_margin_of_a_short_call_is_in_microseconds() -> None:
    """0.4 us is 2% of 20 us."""
    short, shorter, shortest = (node(str(ratio), A, ratio, ratio * 0.999, ratio * 1.001) for ratio in (32, 32.5, 33.2))
    assert not beats(shorter, short)
    assert beats(shortest, short)


def test_over_the_baseline_the_judge_has_the_word() -> None:
    assert beats(node("fast", A, 1.05), None)
    assert not beats(node("even", A, 1.015, 1.005, 1.02), None)
    assert not beats(without_time("checked"), None)
    assert beats(node("slow", A, 0.5), without_time("checked"))


def test_the_same_trials_in_any_order_choose_the_same() -> None:
    nodes = [node(str(i), idea, 2.0) for i, idea in enumerate((A, B, C))]
    assert order(nodes) == order(nodes[::-1])


def test_untimed_candidates_are_parents_only_where_nothing_was_timed() -> None:
    checked, failed = without_time("checked"), without_time("failed", Outcome.WRONG_VALUES)
    compiled, open_ = without_time("compiled", Outcome.NOT_RUN), Node(1, make_candidate("# open\n", A), None)
    timed = node("timed", B, 0.5)
    assert eligible([checked, failed, compiled, open_, timed]) == [timed]
    assert order([checked, failed, compiled, open_]) == [checked]
    assert leader([failed, compiled, open_]) is None


def test_who_is_in_reach_is_who_could_be_chosen() -> None:
    """Against the choice among all, for intervals of every width."""
    numbers = random.Random(5)
    for _ in range(200):
        nodes: list[Node] = []
        for name in range(numbers.randint(1, 12)):
            ratio, spread = numbers.uniform(0.8, 1.6), numbers.uniform(0, 0.3)
            idea, language = numbers.choice((A, B, C)), numbers.choice((Language.TRITON, Language.CUDA))
            nodes.append(node(f"{name} {ratio}", idea, ratio, ratio - spread, ratio + spread, language))
        for count in range(1, 5):
            assert order(list(in_reach(nodes, count)))[:count] == order(nodes)[:count]
