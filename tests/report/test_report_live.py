"""What is seen while a run goes on."""

from __future__ import annotations

import io

from report_records import candidate, failed, idea, passed
from rich.console import Console

from agentgen.records import events
from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.idea import Idea
from agentgen.records.run import RunStatus
from agentgen.records.score import Score
from agentgen.records.trial import Outcome, Trial
from agentgen.report.live import Picture, watching

TILE = idea("Tile the [bold]output[/bold]")
PACK = idea("Pack the weights")
FIRST = candidate("first", TILE)
BROKEN = candidate("broken", PACK)
MENDED = candidate("mended", PACK, parent=BROKEN.id, repair=1)
DEEPER = idea("Prefetch", parent=FIRST.id)
REQUEST = ChatRequest(role=Role.WRITE, problem="conv2d", target="cpp", parent=TILE.id, system="s", prompt="p")


def done(round: int, trial: Trial) -> events.TrialDone:
    """Returns what is told of a trial."""
    return events.TrialDone(round, Score.of(trial))


STORY: tuple[events.One, ...] = (
    events.RoundStarted(1),
    events.IdeasAsked(1, REQUEST),
    events.IdeaProposed(1, TILE),
    events.IdeaProposed(1, PACK),
    events.SourceAsked(1, REQUEST),
    events.CandidateWritten(1, FIRST),
    events.CandidateWritten(1, BROKEN),
    events.BranchEnded(REQUEST, "nothing is recorded"),
    events.StageStarted(FIRST.id, "build"),
    done(1, passed(FIRST, 1.4, 1.35, 1.45)),
    done(1, failed(BROKEN, Outcome.BUILD_FAILED, "line 3")),
    events.CandidateWritten(1, MENDED),
    events.StageStarted(MENDED.id, "check"),
    events.RoundStarted(2),
    events.IdeaProposed(2, DEEPER),
)


def picture(*story: events.One) -> Picture:
    drawn = Picture("conv2d on cpu")
    for event in story:
        drawn.take(event)
    return drawn


def rows(of: Picture, height: int = 50, width: int = 100) -> list[str]:
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(of.draw(height))
    return capture.get().splitlines()


def test_the_tree_hangs_candidates_below_ideas_repairs_below_candidates_and_new_ideas_below_those() -> None:
    drawn = rows(picture(*STORY))
    assert drawn == [
        "conv2d on cpu · round 2 · 3 ideas · 2 evaluated · 1 branches ended · " + f"{MENDED.id[:8]} check",
        "├── Pack the weights",
        f"│   └── {BROKEN.id[:8]} cpp BUILD_FAILED line 3",
        f"│       └── {MENDED.id[:8]} cpp check",
        "└── Tile the [bold]output[/bold]",
        f"    └── {FIRST.id[:8]} cpp PASSED 4.439 ms, 1.40× [1.35, 1.45]",
        "        └── Prefetch",
    ]


def test_a_low_screen_shows_the_busy_and_the_best_and_counts_the_rest() -> None:
    ideas = [idea(f"idea {number}") for number in range(40)]
    candidates = [candidate(f"{number}", of) for number, of in enumerate(ideas)]
    story: list[events.One] = [events.IdeaProposed(1, of) for of in ideas]
    story += [events.CandidateWritten(1, of) for of in candidates]
    story += [done(1, failed(of, Outcome.WRONG_VALUES, "off")) for of in candidates[:20]]
    story += [
        done(1, passed(candidates[25], 1.4, 1.35, 1.45)),
        done(1, passed(candidates[30], 2.4, 2.35, 2.45)),
        events.StageStarted(candidates[39].id, "time"),
    ]
    for height in (2, 5, 9, 24):
        drawn = rows(picture(*story), height)
        assert len(drawn) == height
        assert drawn[-1].endswith(f"… {80 - (height - 2)} more")
    drawn = rows(picture(*story), 9)
    assert [line.split(maxsplit=1)[1] for line in drawn[1:-1:2]] == ["idea 39", "idea 30", "idea 25", "idea 0"]


def test_a_row_stays_one_row_however_narrow_the_screen() -> None:
    wordy = idea("a title of many words " * 8)
    assert len(rows(picture(events.IdeaProposed(1, wordy)), width=30)) == 2


def test_a_repair_that_returns_to_an_earlier_source_closes_no_ring() -> None:
    first = candidate("a", TILE)
    second = candidate("b", TILE, parent=first.id, repair=1)
    again = Candidate(source="a", language=first.language, idea=TILE.id, parent=second.id, repair=2)
    assert again.id == first.id
    story = [events.IdeaProposed(1, TILE), *(events.CandidateWritten(1, of) for of in (first, second, again))]
    assert len(rows(picture(*story))) == 4


def plain(*story: events.Event) -> list[str]:
    out = io.StringIO()
    with watching(Console(file=out, width=60, markup=False, highlight=False, emoji=False), "conv2d on cpu") as watch:
        for event in story:
            watch(event)
    return out.getvalue().splitlines()


def test_without_a_terminal_each_event_is_one_line_however_long() -> None:
    lines = plain(*STORY, events.RunWaiting(1, 2), events.RunEnded(RunStatus.WAITING))
    assert len(lines) == len(STORY) + 2
    assert lines[2] == "idea: Tile the [bold]output[/bold] (memory access)"
    assert lines[5] == f"{FIRST.id[:8]} written in cpp: Tile the [bold]output[/bold]"
    assert lines[7] == "branch ended (write, cpp): nothing is recorded"
    assert lines[9] == f"{FIRST.id[:8]} PASSED 4.439 ms, 1.40× [1.35, 1.45]"
    assert lines[-2:] == ["waiting for 1 answer and 2 evaluations on the run's device", "run waiting"]


def test_on_a_terminal_the_tree_is_drawn_and_left_standing() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=20, color_system=None)
    with watching(console, "conv2d on cpu") as watch:
        for event in STORY:
            watch(event)
    assert f"{FIRST.id[:8]} cpp PASSED" in out.getvalue().split("round 2")[-1]
    assert out.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"


def test_predictions_are_told() -> None:
    bold = Idea(parent="root", category=PACK.category, title="Fuse", reasoning="r", predicted_speedup=1.5)
    assert plain(events.IdeaProposed(1, bold)) == ["idea: Fuse (memory access, predicted 1.5×)"]


def test_what_is_recalled_is_shown_as_if_it_had_just_happened() -> None:
    told = events.Recalled(STORY)
    for kind in (False, True):
        screens: list[str] = []
        for story in (STORY, (told,)):
            console = Console(file=io.StringIO(), width=100, height=40, force_terminal=kind)
            with watching(console, "conv2d on cpu") as watch:
                for event in story:
                    watch(event)
            assert isinstance(console.file, io.StringIO)
            screens.append(console.file.getvalue())
        one_by_one, at_once = screens
        assert one_by_one == at_once or (kind and len(at_once) < len(one_by_one) / 3), "drawn once"
        assert MENDED.id[:8] in at_once
