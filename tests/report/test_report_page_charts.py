"""What the charts of a page show: spending, roofline, times, axes."""

from __future__ import annotations

import pytest
from page_records import large, letter, refined, solution, target

from agentgen.records.chat import Role
from agentgen.report.page import charts, costs
from agentgen.report.page.page import render
from agentgen.report.page.scale import Scale
from agentgen.report.page.times import times
from agentgen.report.page.tree import candidate_key


def test_what_was_spent_follows_the_answers_and_what_is_not_stored_is_no_zero() -> None:
    of, (first, wrong, crashed, repaired) = refined()
    ideas = list(of.ideas.values())
    letters = [
        letter(Role.IDEAS, "root", usd=0.10, seconds=6),
        letter(Role.WRITE, ideas[0].id, usd=0.20, seconds=30),
        letter(Role.WRITE, ideas[2].id, usd=0.30, seconds=30),
        letter(Role.WRITE, ideas[1].id, usd=0.40, seconds=30),
        letter(Role.REPAIR, crashed.id, usd=0.50, seconds=24),
    ]
    spent = costs.spending(of, letters)
    assert [round(spent[one.id].usd or 0, 2) for one in (first, wrong, crashed, repaired)] == [0.3, 0.6, 1.0, 1.5]
    assert spent[repaired.id].tokens == 6000
    judged = sum(seconds for trial in of.trials.values() for seconds in trial.seconds.values())
    assert spent[repaired.id].minutes == pytest.approx((120 + judged) / 60)
    assert [chart.title for chart in charts.progress(of, spent)][2:] == [
        "Best so far over dollars",
        "Best so far over tokens",
    ]
    (all_of_them,) = (bill for bill in costs.bills(letters) if bill.name == "all")
    assert (all_of_them.usd, all_of_them.input_tokens) == (pytest.approx(1.5), 5000)

    unknown = costs.spending(of, [letter(Role.WRITE, ideas[0].id)])
    assert unknown[repaired.id].usd is None
    assert [chart.title for chart in charts.progress(of, unknown)] == [
        "Best so far over evaluations",
        "Best so far over minutes",
    ]
    assert costs.bills([letter(Role.WRITE, "x")])[0].usd is None
    assert costs.not_drawn(letters) == ()
    assert [text.partition(",")[0] for text in costs.not_drawn([letter(Role.WRITE, "x")])] == [
        "The answers of this run were not timed.",
        "What they cost is not stored",
    ]
    assert costs.not_drawn([letter(Role.WRITE, "x", usd=0.0, seconds=1)])[0].startswith("They cost nothing")


def test_the_best_so_far_was_reached_when_its_kernel_was_judged() -> None:
    """Several devices, or a repair, judge in another order than kernels were written in."""
    of, (first, wrong, crashed, repaired) = refined()
    trials = [of.trials[one.id] for one in (wrong, repaired, first, crashed)]
    later = solution(list(of.ideas.values()), list(of.candidates), trials)
    spent = costs.spending(later, ())
    assert [spent[one.id].evaluations for one in (wrong, repaired, first, crashed)] == [1, 2, 3, 4]
    chart = charts.progress(later, spent)[0]
    assert [point.key for point in chart.points] == [candidate_key(one.id) for one in (wrong, repaired, first, crashed)]
    (best,) = (point for point in chart.points if point.is_best)
    (line,) = (line for line in chart.lines if line.style == "best")
    assert line.path.count("V") == 1  # what is judged after the best one raises nothing
    assert f"H{best.x}V{best.y}" in line.path


def test_the_roof_is_where_the_ceilings_meet_and_kernels_lie_below() -> None:
    of, (_, _, _, repaired) = refined()
    chart = charts.roofline(of)
    assert chart
    (roof,) = (line for line in chart.lines if line.style == "roof")
    assert roof.name == "fp32 2 TFLOP/s, measured"
    level = float(roof.path.rpartition(" ")[2].partition("H")[0])
    (best,) = (point for point in chart.points if point.is_best)
    assert best.key == candidate_key(repaired.id)
    assert level < best.y < chart.bottom
    assert len(chart.points) == 2


def test_without_operations_the_roof_is_a_copy() -> None:
    of, _ = refined()
    bare = solution(list(of.ideas.values()), list(of.candidates), list(of.trials.values()), target=target(flops=0))
    chart = charts.roofline(bare)
    assert chart
    assert chart.up == "bytes/s"
    assert "a copy, measured: 20 GB/s" in [line.name for line in chart.lines]
    assert render(bare, {}, (), {})


def test_times_stand_best_first_each_beside_its_own_baseline() -> None:
    of, (first, _, _, repaired) = refined()
    shown = times(of)
    assert shown
    assert [bar.key for bar in shown.bars] == [candidate_key(repaired.id), candidate_key(first.id)]
    assert all(bar.low <= bar.median <= bar.high for bar in shown.bars)
    assert all(bar.median < baseline for bar in shown.bars for baseline in bar.baselines)
    assert shown.bound_text == "roofline bound 2.000 ms"
    assert shown.bound
    assert shown.bound < min(bar.low for bar in shown.bars)
    many = times(large(100))
    assert many
    assert (len(many.bars), many.left_out) == (24, 56)


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 2.16, 0, 100), ["0", "0.5", "1", "1.5", "2"]),
        (Scale(0.5, 60, 0, 100, log=True), ["0.5", "1", "2", "5", "10", "20", "50"]),
        (Scale(3e9, 4e14, 0, 100, log=True), ["10G", "100G", "1T", "10T", "100T"]),
    ],
)
def test_axes_have_round_numbers(scale: Scale, ticks: list[str]) -> None:
    found = scale.ticks()
    assert [text for _, text in found] == ticks
    assert [place for place, _ in found] == sorted(place for place, _ in found)
    assert all(0 <= place <= 100 for place, _ in found)
