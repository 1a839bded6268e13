"""The picture of a run while it goes on."""

from __future__ import annotations

import time
import timeit

from live_story import BROKEN, ESCAPES, FIRST, HOSTILE, MENDED, REQUEST, STORY, TILE, done
from report_records import candidate, failed, idea, passed
from rich.cells import cell_len
from rich.console import Console

from agentgen.records import events
from agentgen.records.candidate import Candidate
from agentgen.records.chat import Role
from agentgen.records.run import Cap, Caps, RunStatus
from agentgen.records.trial import Outcome
from agentgen.report.live.picture import Picture


def picture(*story: events.Event, caps: Caps | None = None, title: str = "conv2d on cpu") -> Picture:
    """Returns a picture of a command that began at 0 and was told everything at 10 s."""
    drawn = Picture(title, caps or Caps(), 0.0)
    for event in story:
        drawn.take(event, 10.0)
    return drawn


def rows(of: Picture, height: int = 50, width: int = 100, now_s: float = 22.0) -> list[str]:
    console = Console(width=width, markup=False, highlight=False, emoji=False)
    lines = console.render_lines(of.draw(width, height, now_s), pad=False)
    return ["".join(segment.text for segment in line) for line in lines]


def tree_of(drawn: list[str]) -> list[str]:
    """The rows below those that say where the run stands."""
    return drawn[1 + next(nth for nth, line in enumerate(drawn) if line.startswith("best: ")) :]


def test_the_tree_hangs_candidates_below_ideas_repairs_below_candidates_and_new_ideas_below_those() -> None:
    drawn = rows(picture(*STORY))
    assert drawn == [
        "conv2d on cpu · 22 s · round 2",
        "3 ideas · 3 candidates · 1 accepted, 1 rejected · 1 branch ended",
        "judged: 1 check 12 s",
        f"best: {FIRST.id[:8]} cpp 4.439 ms, 1.40× [1.35, 1.45] against eager, 31% of the roofline",
        "├── Pack the weights",
        f"│   └── {BROKEN.id[:8]} cpp BUILD_FAILED line 3",
        f"│       └── {MENDED.id[:8]} cpp check 12 s",
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
    for height in (10, 13, 24):
        drawn = rows(picture(*story), height)
        assert len(drawn) == height
        assert drawn[-1] == f"… {80 - (height - 5)} more"
    drawn = tree_of(rows(picture(*story), 13))
    assert [line.split(maxsplit=1)[1] for line in drawn[:-1:2]] == ["idea 39", "idea 30", "idea 25", "idea 0"]


def test_in_any_window_nothing_wraps_and_nothing_is_too_high() -> None:
    story = [*STORY, events.RequestSent(REQUEST)]
    for caps in (Caps(), Caps(tokens=1, usd=1, minutes=1, candidates=1)):
        for width in (1, 2, 3, 7, 40, 200):
            for height in range(1, 14):
                drawn = rows(picture(*story, caps=caps), height, width)
                assert len(drawn) <= height
                assert max(map(cell_len, drawn)) <= width
    assert rows(picture(*story), 1, 40) == ["conv2d on cpu · 22 s · round 2"]
    assert rows(picture(*story), 4, 40) == [
        "conv2d on cpu · 22 s · round 2",
        "asked: 1 write 12 s · judged: 1 check 1…",
        "├ Pack the weights",
        "… 5 more",
    ]


def test_a_deep_tree_in_a_narrow_window_still_shows_what_is_there() -> None:
    line, story = candidate("0", TILE), list[events.One]([events.IdeaProposed(1, TILE)])
    for number in range(40):
        story.append(events.CandidateWritten(1, line))
        line = candidate(f"{number + 1}", TILE, parent=line.id, repair=1)
    drawn = tree_of(rows(picture(*story), 50, 40))
    assert [text.split()[-2:] for text in drawn[1:]] == [["cpp", "wait"]] * 40
    assert max(map(cell_len, drawn)) <= 40


def test_a_repair_that_returns_to_an_earlier_source_closes_no_ring() -> None:
    first = candidate("a", TILE)
    second = candidate("b", TILE, parent=first.id, repair=1)
    again = Candidate(source="a", language=first.language, idea=TILE.id, parent=second.id, repair=2)
    assert again.id == first.id
    story = [events.IdeaProposed(1, TILE), *(events.CandidateWritten(1, of) for of in (first, second, again))]
    assert len(tree_of(rows(picture(*story)))) == 3


def test_what_is_under_way_is_counted_by_kind_with_the_clock_of_the_first() -> None:
    requests = [REQUEST.model_copy(update={"role": role, "nth": nth}) for role in Role for nth in range(2)]
    candidates = [candidate(f"{number}", TILE) for number in range(4)]
    drawn = Picture("p", Caps(), 0.0)
    drawn.take(events.JudgeStarting(), 0.0)
    assert rows(drawn, now_s=65)[2] == "the judge starts 1:05 min: it looks at the device and times the baselines"
    drawn.take(events.JudgeReady(), 65.0)
    for number, request in enumerate(requests):
        drawn.take(events.RequestSent(request), 70.0 + number)
    for number, of in enumerate(candidates):
        drawn.take(events.CandidateWritten(1, of), 80.0 + number)
    for nth, stage in enumerate(("time", "wait", "time")):
        drawn.take(events.StageStarted(candidates[nth].id, stage), 90.0 + nth)
    asked = "asked: 2 ideas 30 s, 2 write 28 s, 2 repair 26 s, 2 refine 24 s"
    assert (
        rows(drawn, width=200, now_s=100)[2] == f"{asked} · judged: 2 time 10 s, 1 wait for the device 9 s, 1 wait 17 s"
    )
    for request in requests:
        drawn.take(events.RequestOver(request), 101.0)
    drawn.take(events.StageStarted(candidates[0].id, "general"), 101.0)
    said = "judged: 1 general 1 s, 1 wait for the device 11 s, 1 time 10 s, 1 wait 19 s"
    assert rows(drawn, width=200, now_s=102)[2] == said
    drawn.take(events.RunWaiting(0, 4), 103.0)
    drawn.take(events.RunEnded(RunStatus.WAITING), 103.0)
    assert rows(drawn, now_s=999)[2] == "waiting for 4 evaluations on the run's device"
    assert not [line for line in tree_of(rows(drawn, now_s=999)) if " s" in line], "no clock goes on"


def test_only_caps_that_are_set_are_shown_and_what_is_not_known_is_never_0() -> None:
    used = events.Used(tokens=12_300, usd=0.25, about=frozenset())
    every = Caps(tokens=20_000, usd=2.5, minutes=30, candidates=40)
    row = "12,300 of 20,000 tokens · 0.2500 of 2.5000 USD · 0.4 of 30.0 minutes · 3 of 40 candidates"
    assert rows(picture(*STORY, used, caps=every))[3] == row
    assert rows(picture(*STORY, used, caps=Caps(tokens=20_000)))[3] == "12,300 of 20,000 tokens"
    assert rows(picture(*STORY, caps=Caps(tokens=20_000)))[3] == "unknown of 20,000 tokens"
    about = events.Used(tokens=12_300, usd=0.25, about=frozenset({Cap.TOKENS}))
    row = "unknown (counted as 12,300) of 20,000 tokens · 0.2500 of 2.5000 USD"
    assert rows(picture(*STORY, about, caps=Caps(tokens=20_000, usd=2.5)))[3] == row
    assert not [line for line in rows(picture(*STORY, used)) if "tokens" in line or "USD" in line]


def test_the_best_is_the_one_whose_interval_ends_highest_at_its_lower_end() -> None:
    lucky, steady, untimed = (candidate(name, TILE) for name in ("lucky", "steady", "untimed"))
    story: list[events.One] = [events.CandidateWritten(1, of) for of in (lucky, steady, untimed)]
    story.append(done(1, passed(untimed, 1, 1, 1, timed=False)))
    assert "best: none yet" in rows(picture(*story))
    story += [done(1, passed(steady, 1.5, 1.45, 1.55)), done(1, passed(lucky, 2.0, 1.2, 2.8))]
    named = f"best: {steady.id[:8]} cpp 4.143 ms, 1.50× [1.45, 1.55] against eager, 31% of the roofline"
    assert named in rows(picture(*story))


def test_what_is_told_once_more_changes_nothing() -> None:
    once, twice = picture(*STORY), picture(*STORY, events.Recalled(STORY))
    assert rows(once) == rows(twice)
    assert rows(once) == rows(picture(events.Recalled(STORY)))


def test_hostile_words_stay_words_in_their_row() -> None:
    begun = time.perf_counter()
    for nth in range(len(HOSTILE)):
        drawn = rows(picture(*STORY, *HOSTILE[: nth + 1], title=ESCAPES), 40, 100)
        assert len(drawn) <= 40
        assert all(line.isprintable() and cell_len(line) <= 100 for line in drawn)
    everything = "\n".join(rows(picture(*STORY, *HOSTILE), 40, 2000))
    assert r"\x1b[2J\x1b]0;owned\x07 \u202eback\u200b [red]loud[/red] {0}\r second \x9b1A long" in everything
    assert time.perf_counter() - begun < 2


def drawing_s(nodes: int) -> float:
    """Returns the seconds of a drawing of a run with so many candidates."""
    drawn, above = Picture("p", Caps(), 0.0), TILE
    drawn.take(events.IdeaProposed(1, TILE), 0.0)
    for number in range(nodes):
        of = candidate(f"{number}", above)
        drawn.take(events.CandidateWritten(1, of), 0.0)
        drawn.take(done(1, passed(of, 1.4, 1.35, 1.45)), 0.0)
        if number % 20 == 0:
            above = idea(f"idea {number}", parent=of.id if number % 40 else "root")
            drawn.take(events.IdeaProposed(1, above), 0.0)
    return min(timeit.repeat(lambda: drawn.draw(100, 50, 1.0), number=1, repeat=5))


def test_a_drawing_costs_what_its_rows_cost_however_large_the_tree_is() -> None:
    assert drawing_s(8_000) < 5 * drawing_s(100)
