"""What the gate calls a regression, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_reports import KERNEL, MACHINE, PASSED, PROBLEM, UNSOLVED, Go, refused, report, timed

from agentgen.records.trial import Outcome
from agentgen.scoring import batch
from agentgen.scoring.batch import Report
from agentgen.scoring.gate import Change, Kind, compare, least_told, suspects

CRASH = refused(Outcome.CRASHED, "signal 11 in the guest")


def only(changes: tuple[Change, ...]) -> Change:
    """Returns the one change that there is."""
    (change,) = changes
    return change


def test_nothing_changed() -> None:
    found: dict[str, list[Go]] = {"a": [timed(2.0)], "b": [refused()], "c": ["the device is gone"]}
    assert compare(report(found), report(found)) == ()


# ---- verdicts --------------------------------------------------------------------------------------------------------


def test_a_wrong_answer_is_lost_with_its_reason_in_one_line() -> None:
    change = only(compare(report({"a": [refused()]}), report({"a": [timed(2.0)]})))
    assert change.regression
    assert change.line == "lost: a: Decision: PASSED -> WRONG_VALUES: main: too large an error"


def test_a_crashing_kernel_is_lost_also_where_nothing_is_asserted() -> None:
    change = only(compare(report({"a": [CRASH]}, asserts=(), due=None), report({"a": [PASSED]}, asserts=(), due=None)))
    assert change.regression
    assert change.line == "lost: a: accepted or refused as it is due: PASSED -> CRASHED: signal 11 in the guest"


def test_a_cheat_that_is_accepted_is_lost() -> None:
    change = only(compare(report({"a": [PASSED]}, due=False), report({"a": [refused()]}, due=False)))
    assert change.kind is Kind.LOST


def test_what_holds_again_is_gained_and_no_regression() -> None:
    change = only(compare(report({"a": [PASSED]}), report({"a": [refused()]})))
    assert (change.kind, change.regression) == (Kind.GAINED, False)


def test_all_assertions_of_a_case_are_one_line() -> None:
    both = ("Decision", "Cause")
    change = only(compare(report({"a": [refused()]}, asserts=both), report({"a": [PASSED]}, asserts=both)))
    assert change.what == "Decision, Cause"


def test_an_assertion_that_cannot_be_evaluated_does_not_hold() -> None:
    change = only(compare(report({"a": [PASSED]}, raising=("Decision",)), report({"a": [PASSED]})))
    assert (change.kind, change.what) == (Kind.LOST, "Decision")


def test_an_assertion_that_nobody_makes_any_more_is_missing() -> None:
    change = only(compare(report({"a": [PASSED]}, asserts=()), report({"a": [PASSED]})))
    assert change.line == "missing: a: Decision: is asserted no more"
    two: dict[str, list[Go]] = {"a": [PASSED], "b": [PASSED]}
    change = only(compare(report(two, asserts=()), report(two)))
    assert change.line == "missing: every case: Decision: is asserted no more"


def test_an_assertion_that_one_case_lost_is_missing_there() -> None:
    two: dict[str, list[Go]] = {"a": [PASSED], "b": [PASSED]}
    new = report(two)
    new.cases[1].assertions.clear()
    change = only(compare(new, report(two)))
    assert (change.line, change.regression) == ("missing: b: Decision: is asserted no more", True)


def test_what_was_asserted_of_a_case_that_crashes_is_not_missing_as_well() -> None:
    old = report({"a": [PASSED], "b": [PASSED]})
    old.cases[1].assertions.clear()
    new = report({"a": ["gone"], "b": [PASSED]}, asserts=())
    assert only(compare(new, old)).kind is Kind.CRASHED


def test_an_evaluator_that_raises_now_is_lost_whatever_it_says() -> None:
    old, new = report({"a": [PASSED]}), report({"a": [PASSED]}, raising=("Speed",))
    change = only(compare(new, old))
    assert (change.line, change.regression) == ("lost: a: Speed: raised: it raised", True)
    assert compare(new, new) == ()
    unmet, raising = report({"a": [refused()]}), report({"a": [refused()]}, raising=("Decision",))
    assert only(compare(raising, unmet)).line == "lost: a: Decision: raised: it raised"
    assert compare(old, new) == (), "a score that is there again was never asserted"


def test_an_evaluator_of_the_whole_report_that_raises_now_is_lost() -> None:
    old, new = report({"a": [PASSED]}), report({"a": [PASSED]})
    new.report_evaluator_failures += report({"a": [PASSED]}, raising=("FastP",)).cases[0].evaluator_failures
    change = only(compare(new, old))
    assert (change.line, change.regression) == ("lost: the whole report: FastP: raised: it raised", True)
    assert compare(new, new) == ()


# ---- several goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ([True, True, True], [True, True, False], True),
        ([True, True, False], [True, False, False], False),
        ([True, True, False], [False, False, False], True),
        ([True], [True, False, True], True),
        ([False, False], [False], False),
    ],
)
def test_a_kernel_s_verdict_must_stay_what_it_was(old: list[bool], new: list[bool], lost: bool) -> None:
    def goes(held: list[bool]) -> Report:
        return report({"a": [PASSED if one else refused() for one in held]})

    found = compare(goes(new), goes(old))
    assert (Kind.LOST in [change.kind for change in found]) is lost


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ((1, 1), (0, 1), True),
        ((3, 3), (2, 3), False),
        ((5, 5), (4, 5), False),
        ((5, 5), (1, 5), True),  # 6 of 252 ways
        ((2, 3), (0, 3), False),
        ((4, 4), (0, 4), True),  # 1 of 70 ways
        ((3, 3), (0, 3), True),  # 1 of 20 ways, not rarer than 5%: but it always held, and never does
        ((2, 2), (0, 2), True),
        ((1, 1), (0, 2), True),
        ((3, 3), (0, 1), True),
        ((1, 1), (2, 3), False),
    ],
)
def test_a_search_may_fail_by_chance(old: tuple[int, int], new: tuple[int, int], lost: bool) -> None:
    def goes(count: int, of: int) -> Report:
        return report({"a": [PASSED] * count + [UNSOLVED] * (of - count)}, inputs=PROBLEM, asserts=(), due=None)

    found = compare(goes(*new), goes(*old))
    assert [change.kind for change in found] == ([Kind.LOST] if lost else [])


def test_more_problems_ask_for_more_evidence() -> None:
    def goes(count: int, problems: int) -> Report:
        many = {f"c{n}": [PASSED] * 5 for n in range(1, problems)}
        found = {"a": [PASSED] * count + [UNSOLVED] * (5 - count), **many}
        return report(found, inputs=PROBLEM, asserts=(), due=None)

    assert only(compare(goes(1, 2), goes(5, 2))).kind is Kind.LOST, "6 of 252 ways is rarer than 5% over 2"
    assert compare(goes(1, 3), goes(5, 3)) == (), "and not than 5% over 3"


def test_an_unsolved_problem_is_said_to_be_one() -> None:
    new, old = (report({"a": [go]}, inputs=PROBLEM, asserts=(), due=None) for go in (UNSOLVED, PASSED))
    assert only(compare(new, old)).line.endswith("PASSED -> unsolved: no candidate was evaluated")


# ---- the machine, and cases that come and go -------------------------------------------------------------------------


def test_a_machine_that_fails_where_it_had_not_is_a_crash() -> None:
    change = only(compare(report({"a": ["MachineFailure: no verdict within 60 s"]}), report({"a": [PASSED]})))
    assert change.regression
    assert change.line == "crashed: a: PASSED -> the machine failed: MachineFailure: no verdict within 60 s"
    assert only(compare(report({"a": [PASSED]}), report({"a": ["gone"]}))).kind is Kind.RECOVERED


def test_one_failing_go_of_several_is_a_crash() -> None:
    change = only(compare(report({"a": [PASSED, "DeviceLost: gone"]}), report({"a": [PASSED, PASSED]})))
    assert (
        change.line
        == "crashed: a: PASSED in 2 of 2 -> PASSED in 1 of 2, the machine failed in 1 of 2: DeviceLost: gone"
    )


def test_a_removed_case_is_missing_and_a_new_one_is_new() -> None:
    found = compare(report({"b": [PASSED]}), report({"a": [PASSED]}))
    assert [change.line for change in found] == ["missing: a: PASSED -> no such case", "new: b: PASSED"]
    assert [change.regression for change in found] == [True, False]


def test_a_case_that_this_device_cannot_decide_is_not_missed() -> None:
    old = report({"a": [PASSED]}, devices=("cuda",))
    new = report({"b": [PASSED]})
    assert [change.kind for change in compare(new, old)] == [Kind.NEW]


# ---- times -----------------------------------------------------------------------------------------------------------


def test_a_slowdown_beyond_the_intervals_is_a_regression_and_a_speedup_is_none() -> None:
    slower = only(compare(report({"a": [timed(1.90)]}), report({"a": [timed(2.0)]})))
    assert slower.regression
    assert slower.line == (
        "slower: a: by 5.3%, of its speedup over eager: 2.000x [1.996, 2.004] -> 1.900x [1.896, 1.904]"
    )
    faster = only(compare(report({"a": [timed(2.1)]}), report({"a": [timed(2.0)]})))
    assert (faster.kind, faster.regression) == (Kind.FASTER, False)


def test_less_than_the_margin_is_no_change_however_well_it_is_known() -> None:
    assert compare(report({"a": [timed(1.985, 1e-5)]}), report({"a": [timed(2.0, 1e-5)]})) == ()


def test_wide_intervals_tell_nothing_and_more_goes_do() -> None:
    old: list[Go] = [timed(2.0 + step, 0.02) for step in (-0.01, 0.0, 0.01)]
    new: list[Go] = [timed(1.8 + step, 0.02) for step in (-0.01, 0.0, 0.01)]
    assert compare(report({"a": new[:1]}), report({"a": old[:1]})) == ()
    assert suspects(report({"a": new[:1]}), report({"a": old})) == ("a",)
    assert only(compare(report({"a": new[:1]}), report({"a": old}), report({"a": [*new, *new]}))).kind is Kind.SLOWER


def test_goes_that_scatter_say_so_whatever_their_intervals_say() -> None:
    old: list[Go] = [timed(2.0 * factor, 0.001) for factor in (0.9, 1.0, 1.1, 1.05)]
    new: list[Go] = [timed(1.9 * factor, 0.001) for factor in (0.9, 1.0, 1.1, 1.05)]
    assert compare(report({"a": new}), report({"a": old})) == ()


def test_what_was_done_again_and_was_no_slower_is_no_regression() -> None:
    old, new = report({"a": [timed(2.0, 0.004)] * 3}), report({"a": [timed(1.9, 0.004)]})
    assert only(compare(new, old)).kind is Kind.SLOWER
    assert compare(new, old, report({"a": [timed(2.0, 0.004)] * 5})) == ()


def test_goes_of_one_bad_hour_are_outvoted_by_fewer_that_were_done_again() -> None:
    old, bad = report({"a": [timed(2.0, 0.004)] * 3}), report({"a": [timed(1.9, 0.004)] * 40})
    assert only(compare(bad, old)).kind is Kind.SLOWER
    assert compare(bad, old, report({"a": [timed(2.0, 0.004)] * 5})) == ()
    assert only(compare(bad, old, report({"a": [timed(1.9, 0.004)] * 5}))).kind is Kind.SLOWER


def test_a_verdict_that_is_lost_when_it_is_done_again_is_lost() -> None:
    found = compare(report({"a": [PASSED]}), report({"a": [PASSED]}), report({"a": [PASSED, refused()]}))
    assert only(found).kind is Kind.LOST


@pytest.mark.parametrize(("field", "value"), [("torch", "3"), ("triton", "3"), ("device", "another"), ("cores", 4)])
def test_times_of_another_kind_of_machine_are_not_compared_and_verdicts_are(field: str, value: object) -> None:
    old = report({"a": [timed(2.0)], "b": [PASSED]})
    new = report({"a": [timed(1.0)], "b": [refused()]}, machine={**MACHINE, field: value})
    lost, said = compare(new, old)
    assert (lost.kind, lost.case) == (Kind.LOST, "b")
    assert said.line == f"not compared: times: {field} {MACHINE[field]} -> {field} {value}"
    assert not said.regression
    assert suspects(new, old) == ()
    assert least_told(new, old) == {}


def test_another_driver_is_compared() -> None:
    new = report({"a": [timed(1.8)]}, machine={**MACHINE, "driver": "581"})
    assert only(compare(new, report({"a": [timed(2.0)]}))).kind is Kind.SLOWER


def test_the_same_baseline_is_compared() -> None:
    old, new = report({"a": [timed(2.0, baseline="compile")]}), report({"a": [timed(1.0)]})
    assert only(compare(new, old)).line == "not compared: times of a: no baseline was raced in all goes"


def test_searches_in_single_goes_are_compared_where_they_found_the_same_kernel() -> None:
    def solved(*goes: Go) -> Report:
        return report({"a": list(goes)}, inputs=PROBLEM, asserts=(), due=None)

    assert only(compare(solved(timed(1.5)), solved(timed(2.0)))).kind is Kind.SLOWER
    other = compare(solved(timed(1.5, kernel="other")), solved(timed(2.0)))
    assert only(other).line == "not compared: times of a: single goes found other kernels"
    assert suspects(solved(timed(1.5)), solved(timed(2.0))) == (), "a search is not done again"
    several = [timed(ratio, kernel=f"k{ratio}") for ratio in (1.50, 1.51, 1.49)]
    better = [timed(ratio, kernel=f"k{ratio}") for ratio in (2.00, 2.01, 1.99)]
    assert only(compare(solved(*several), solved(*better))).kind is Kind.SLOWER


def test_more_cases_ask_for_more_evidence() -> None:
    one = {"a": timed(2.0, 0.01)}
    many = {f"c{n}": timed(2.0, 0.01) for n in range(100)}
    least = [least_told(*[report({name: [go] for name, go in each.items()})] * 2) for each in (one, one | many)]
    assert least[0]["a"] < least[1]["a"]


def test_a_report_compares_the_same_after_it_was_kept(tmp_path: Path) -> None:
    old, new = report({"a": [timed(2.0)], "b": [PASSED]}), report({"a": [timed(1.9)], "b": ["gone"]})
    for name, one in (("old", old), ("new", new)):
        batch.save(one, tmp_path / name)
    assert compare(batch.read(tmp_path / "new"), batch.read(tmp_path / "old")) == compare(new, old)
    assert isinstance(old.cases[0].inputs, type(KERNEL))
