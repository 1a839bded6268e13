"""What became of ideas, beside what was predicted."""

from __future__ import annotations

from report_records import idea
from rich.console import Console

from agentgen.records.idea import Became, Gain
from agentgen.report.ideas import became_json, ideas_table

WON, LOST, KNOWN, OPEN = (idea(f"Idea [b]{name}[/b]") for name in ("won", "lost", "known", "open"))
SAME = KNOWN.model_copy(update={"same_as": WON.id})
BECAME = {
    WON.id: Became(candidates=3, gain=Gain(ratio=1.234, low=1.2, high=1.27)),
    LOST.id: Became(candidates=4, failure="CRASHED: it ended"),
    SAME.id: Became(candidates=0),
    OPEN.id: Became(candidates=0),
}


def test_the_best_stands_first_and_each_says_how_it_ended() -> None:
    console = Console(width=100, highlight=False)
    with console.capture() as capture:
        console.print(ideas_table({one.id: one for one in (OPEN, LOST, SAME, WON)}, BECAME))
    lines = [" ".join(line.split()) for line in capture.get().splitlines() if "Idea" in line]
    assert lines[0] == f"Idea [b]won[/b] {_predicted()} 1.23× [1.20, 1.27] 3"
    assert f"Idea [b]lost[/b] {_predicted()} abandoned 4" in lines
    assert f"Idea [b]known[/b] {_predicted()} known 0" in lines
    assert f"Idea [b]open[/b] {_predicted()} – 0" in lines
    assert "as predicted, and as its best implementation" in " ".join(capture.get().split())


def _predicted() -> str:
    return f"{WON.predicted_speedup:.2f}×" if WON.predicted_speedup else "–"


def test_as_json_what_is_not_known_is_null() -> None:
    assert became_json(WON, BECAME) == {
        "became": {"candidates": 3, "gain": {"ratio": 1.234, "low": 1.2, "high": 1.27}, "failure": None}
    }
    assert became_json(WON, {}) == {"became": None}
