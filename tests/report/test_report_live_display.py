"""The window that a run is seen in, in a real pseudo-terminal."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from live_story import FIRST, HOSTILE, STORY
from rich.console import Console
from terminals import CLOSES, OPENS, SHOWS, Terminal, frames, size_of, terminal, until

from agentgen.records import events
from agentgen.records.run import Caps, RunStatus
from agentgen.report.live.clock import stages
from agentgen.report.live.display import Watch, is_live, watching


@contextmanager
def window(opened: Terminal) -> Generator[Watch]:
    """A live display in a terminal."""
    with (
        open(os.dup(opened.slave), "w", encoding="utf-8") as file,
        watching(console_in(file), "live", "conv2d on cpu", Caps(), time.monotonic()) as watch,
    ):
        yield watch


def console_in(file: object) -> Console:
    return Console(file=file, markup=False, highlight=False, emoji=False, _environ={"TERM": "xterm"})  # pyright: ignore


def test_events_are_painted_and_the_last_picture_is_left_standing() -> None:
    with terminal(100, 20) as opened, window(opened) as watch:
        watch(STORY[0])
        until(lambda: "round 1" in opened.said)
        for event in STORY[1:]:
            watch(event)
    said = opened.said
    painted = frames(said)
    assert {size_of(frame) for frame in painted} == {(100, 20)}
    before, _, left = said.rpartition(CLOSES)
    assert f"{FIRST.id[:8]} cpp" in left
    assert left.count("\n") == 10
    assert before.startswith(OPENS)
    assert said.rindex(SHOWS) > said.rindex("\x1b[?25l"), "the cursor is shown again"
    assert said.rindex("\x1b[?7h") > said.rindex("\x1b[?7l"), "lines wrap again"


def test_however_many_events_there_are_ten_pictures_are_painted_a_second() -> None:
    count = 0
    with terminal(100, 20) as opened:
        begun = time.monotonic()
        with window(opened) as watch:
            while time.monotonic() < begun + 0.5:
                for event in STORY:
                    watch(event)
                    count += 1
        seconds = time.monotonic() - begun
    painted = len(frames(opened.said))
    assert count > 1_000
    assert 2 <= painted <= 10 * seconds + 1


def test_a_clock_goes_on_while_nothing_is_told_and_costs_little() -> None:
    with terminal(100, 20) as opened:
        with window(opened) as watch:
            begun = time.monotonic()
            watch(events.JudgeStarting())
            until(lambda: bool(re.search("the judge starts [1-9]", opened.said)))
            seconds = time.monotonic() - begun
        assert 2 <= len(frames(opened.said)) <= 3 + seconds


def test_a_window_that_is_resized_is_painted_anew_in_its_size() -> None:
    with terminal(100, 30) as opened, window(opened) as watch:
        for event in STORY:
            watch(event)
        for size in ((100, 30), (1, 1), (200, 60), (40, 10)):
            opened.resize(*size)
            until(lambda size=size: opened.quiet and size_of(frames(opened.said)[-1]) == size, 2)
        watch(events.RunEnded(RunStatus.DONE))
    said = opened.said
    assert {size_of(frame) for frame in frames(said)} == {(100, 30), (40, 10), (1, 1), (200, 60)}
    left = said.rpartition(SHOWS)[2].splitlines()
    assert len(left) == 9, "the last picture leaves a row for what comes next"


def test_hostile_words_reach_the_terminal_as_words() -> None:
    with terminal(100, 30) as opened, window(opened) as watch:
        for event in HOSTILE:
            watch(event)
        until(lambda: "owned" in opened.said)
    said = opened.said
    assert frames(said), "fails at any other sequence"
    for harm in ("\x1b[2J", "\x1b]", "\x07", "\u202e", "\u200b", "\x9b"):
        assert harm not in said
    assert "[red]loud[/red]" in said


class Ended(Exception):
    """Something that nobody expects."""


def _shown(opened: Terminal, error: type[BaseException]) -> None:
    with window(opened) as watch:
        watch(STORY[0])
        raise error


@pytest.mark.parametrize("error", [Ended, KeyboardInterrupt])
def test_whatever_ends_it_the_terminal_is_as_it_was(error: type[BaseException]) -> None:
    with terminal(100, 20) as opened, pytest.raises(error):
        _shown(opened, error)
    assert "round 1" in opened.said.rpartition(SHOWS)[2]
    assert opened.said.count(OPENS) == opened.said.count(CLOSES) == 1
    assert "display" not in {thread.name for thread in threading.enumerate()}


def test_a_terminal_that_is_gone_is_no_fault() -> None:
    master, slave = os.openpty()
    with (
        open(slave, "w", encoding="utf-8") as file,
        watching(console_in(file), "live", "conv2d on cpu", Caps(), time.monotonic()) as watch,
    ):
        watch(STORY[0])
        os.close(master)
        time.sleep(0.3)
        watch(STORY[1])
    assert "display" not in {thread.name for thread in threading.enumerate()}


def _told_for_ever(opened: Terminal) -> None:
    with window(opened) as watch:
        while True:
            for event in STORY:
                watch(event)


@pytest.fixture
def alarm() -> Generator[None]:
    """Has an alarm interrupt as Ctrl-C does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_an_interrupt_while_an_event_is_told_leaves_no_lock_held() -> None:
    with terminal(100, 20) as opened:
        for nth in range(5):
            signal.setitimer(signal.ITIMER_REAL, 0.05 + 0.013 * nth)
            with pytest.raises(KeyboardInterrupt):
                _told_for_ever(opened)
    assert opened.said.count(CLOSES) == 5


def test_what_others_write_to_stderr_comes_after_the_window(capfd: pytest.CaptureFixture[str]) -> None:
    with terminal(100, 20) as opened:
        with window(opened):
            os.write(2, b"the judge's last words \x1b[2J\n")
            assert not capfd.readouterr().err
        assert capfd.readouterr().err == "the judge's last words \\x1b[2J\n"
        assert "last words" not in opened.said


def test_only_what_is_a_terminal_is_shown_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(100, 20) as opened, open(os.dup(opened.slave), "w") as file:
        assert is_live(Console(file=file, _environ={"TERM": "xterm"}))
        assert not is_live(Console(file=file, _environ={"TERM": "dumb"}))
    with open(os.devnull, "w") as file:
        assert not is_live(Console(file=file, force_terminal=True, _environ={"TERM": "xterm"}))


def test_stages_are_lines_with_their_clocks_and_the_present_one_ticks_below() -> None:
    with (
        terminal(100, 20) as opened,
        open(os.dup(opened.slave), "w", encoding="utf-8") as file,
        stages(console_in(file), "live") as on_stage,
    ):
        on_stage("build")
        until(lambda: bool(re.search("build … [1-9]", opened.said)))
        on_stage("check")
    assert re.search("build [1-9].*check [0-9]", opened.said, re.DOTALL)
    assert opened.said.rindex(SHOWS) > opened.said.rindex("\x1b[?25l")
