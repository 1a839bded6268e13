"""The table at the end of a run, as people read it."""

from __future__ import annotations

from report_records import candidate, failed, idea, passed, with_neighbours
from rich.console import Console, RenderableType

from agentgen.records.candidate import Candidate
from agentgen.records.trial import Outcome, Trial
from agentgen.report.table import best, end_table, verdict

TILE = idea("Tile the [bold]output[/bold]")
PACK = idea("Pack the weights")
IDEAS = {TILE.id: TILE, PACK.id: PACK}
SLOW, FAST, LUCKY = (candidate(text, TILE) for text in ("slow", "fast", "lucky"))
BROKEN = candidate("broken", PACK, parent=SLOW.id, repair=1)
WAITING = candidate("waiting", PACK)
TRIALS = {
    trial.candidate: trial
    for trial in (
        passed(SLOW, 0.8, 0.75, 0.85),
        passed(FAST, 1.4, 1.35, 1.45),
        passed(LUCKY, 1.6, 0.9, 2.5),
        failed(BROKEN, Outcome.BUILD_FAILED, "\n line 3: expected ';' [/x]\nand more", "second reason"),
    )
}


def text(what: RenderableType, width: int = 140) -> str:
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def shown(*candidates: Candidate, width: int = 140) -> list[str]:
    return [line.rstrip() for line in text(end_table(candidates, IDEAS, TRIALS, width), width).splitlines()]


def row(lines: list[str], of: Candidate) -> str:
    return next(line for line in lines if of.id[:8] in line)


def test_accepted_kernels_are_ranked_by_the_lower_end_of_their_interval() -> None:
    lines = shown(SLOW, LUCKY, FAST)
    order = [lines.index(row(lines, of)) for of in (FAST, LUCKY, SLOW)]
    assert order == sorted(order)
    assert best(list(TRIALS.values())) == TRIALS[FAST.id]


def test_a_row_tells_candidate_idea_outcome_time_speedup_roofline_and_n() -> None:
    cells = row(shown(FAST), FAST).split("  ")
    assert [cell.strip() for cell in cells if cell.strip()] == [
        FAST.id[:8],
        "Tile the [bold]output[/bold]",
        "cpp",
        "PASSED",
        "4.439 ms",
        "1.40× [1.35, 1.45]",
        "31%",
        "25",
    ]


def test_failures_come_with_the_first_line_of_their_first_reason_and_repairs_are_marked() -> None:
    line = row(shown(FAST, BROKEN), BROKEN)
    assert "BUILD_FAILED" in line
    assert "line 3: expected ';' [/x]" in line
    assert "repair 1: Pack the weights" in line
    assert "second reason" not in "\n".join(shown(FAST, BROKEN))


def test_what_waits_for_its_device_is_not_evaluated_rather_than_failed() -> None:
    assert "not evaluated" in row(shown(WAITING), WAITING)


def test_the_machine_and_the_baseline_stand_below() -> None:
    lines = "\n".join(shown(FAST, SLOW))
    assert "best baseline (eager)" in lines
    assert lines.endswith("on AMD EPYC 9554, 2 cores, torch 2.13.0, Python 3.11.7")


def test_a_narrow_screen_keeps_the_figures_and_the_ideas_whole() -> None:
    lines = shown(FAST, SLOW, BROKEN, width=80)
    assert max(map(len, lines)) <= 80
    assert "1.40× [1.35, 1.45]" in row(lines, FAST)
    assert any(FAST.id[:8] in line and "Tile the [bold]output[/bold]" in line for line in lines)


def verdict_of(*trials: Trial) -> str:
    return verdict(trials)


def test_the_verdict_is_honest() -> None:
    fast, slow, broken = TRIALS[FAST.id], TRIALS[SLOW.id], TRIALS[BROKEN.id]
    untimed = passed(WAITING, 1, 1, 1, timed=False)
    assert verdict_of() == "no candidate was evaluated"
    assert verdict_of(broken) == "no candidate was accepted (of 1)"
    assert verdict_of(fast, slow, broken) == (
        f"2 of 3 candidates accepted; best: {FAST.id[:8]} at 1.40× [1.35, 1.45] against eager"
    )
    assert verdict_of(with_neighbours(fast)).endswith("against eager; 0.04× at its worst neighbouring shape, odd sizes")
    assert "none is faster than the best baseline beyond doubt" in verdict_of(slow, broken)
    assert "none could be timed" in verdict_of(untimed)
    assert best([untimed, broken]) is None
