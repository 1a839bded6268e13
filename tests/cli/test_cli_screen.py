"""What kernels and models say controls no terminal."""

from __future__ import annotations

import io

import pytest
from rich.live import Live
from rich.text import Text

from agentgen.cli.screen import screen
from agentgen.errors import BadInput


def test_no_text_controls_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = screen()
    out = io.StringIO()
    monkeypatch.setattr(console, "file", out)
    console.print("said \x1b[2J", Text("\x1b]0;title\x07 [bold]\u202eback\n"), "one\ttwo\nthree", style="red")
    said = out.getvalue()
    assert "said \\x1b[2J" in said
    assert "\\x1b]0;title [bold]\\u202eback\n" in said
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    assert said.splitlines()[-1].endswith("three")


def test_rich_itself_may_colour_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = screen()
    monkeypatch.setattr(console, "file", out := io.StringIO())
    console.print(Text("red \x1b[2J", style="red"))
    assert out.getvalue() == "\x1b[31mred \\x1b[2J\x1b[0m\n"


def test_what_is_seen_meanwhile_is_what_suits_unless_it_is_said() -> None:
    assert screen().display == "plain", "no test runs in a terminal"
    assert screen("plain").display == "plain"
    assert screen("none").meanwhile.quiet
    assert screen().meanwhile.quiet is False
    with pytest.raises(BadInput, match="--display live needs a terminal"):
        screen("live")


def test_plain_lines_have_no_colours_in_a_terminal_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = screen("plain")
    monkeypatch.setattr(console, "file", out := io.StringIO())
    console.print(Text("red", style="red"), style="dim")
    assert out.getvalue() == "red\n"


def test_a_live_display_is_no_way_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = screen()
    monkeypatch.setattr(console, "file", out := io.StringIO())
    with Live(Text("\x1b]0;title\u202e"), console=console, auto_refresh=False):
        pass
    assert "\\x1b]0;title\\u202e" in out.getvalue()
    assert "\x1b]" not in out.getvalue()
    assert "\u202e" not in out.getvalue()
