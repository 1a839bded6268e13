"""A run in plain lines."""

from __future__ import annotations

import io

from live_story import FIRST, HOSTILE, PACK, STORY
from rich.console import Console

from agentgen.records import events
from agentgen.records.idea import Idea
from agentgen.records.run import Caps, RunStatus
from agentgen.report.live.display import watching


def lines(*story: events.Event) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=60, markup=False, highlight=False, emoji=False)
    with watching(console, "plain", "conv2d on cpu", Caps(), 0.0) as watch:
        for event in story:
            watch(event)
    return out.getvalue().split("\n")[:-1]


def test_each_event_is_one_line_however_long() -> None:
    said = lines(*STORY, events.RunWaiting(1, 2), events.RunEnded(RunStatus.WAITING))
    assert len(said) == len(STORY) + 2
    assert said[2] == "idea: Tile the [bold]output[/bold] (memory access)"
    assert said[5] == f"{FIRST.id[:8]} written in cpp: Tile the [bold]output[/bold]"
    assert said[7] == "branch ended (write, cpp): nothing is recorded"
    assert said[9] == f"{FIRST.id[:8]} PASSED 4.439 ms, 1.40× [1.35, 1.45]"
    assert said[-2:] == ["waiting for 1 answer and 2 evaluations on the run's device", "run waiting"]


def test_what_only_moves_a_clock_or_a_sum_is_no_line() -> None:
    request = next(event.request for event in STORY if isinstance(event, events.SourceAsked))
    assert not lines(events.RequestSent(request), events.Used(1, 1.0, frozenset()), events.RequestOver(request))


def test_predictions_are_told() -> None:
    bold = Idea(parent="root", category=PACK.category, title="Fuse", reasoning="r", predicted_speedup=1.5)
    assert lines(events.IdeaProposed(1, bold)) == ["idea: Fuse (memory access, predicted 1.5×)"]


def test_what_is_recalled_is_told_as_if_it_had_just_happened() -> None:
    assert lines(events.Recalled(STORY)) == lines(*STORY)


def test_hostile_words_stay_words_in_their_line() -> None:
    said = lines(*HOSTILE)
    assert len(said) == len([event for event in HOSTILE if not isinstance(event, events.RequestSent)])
    assert all(line.isprintable() and len(line) <= 500 for line in said)
    assert len([line for line in said if "[red]loud[/red]" in line]) > len(said) / 2
