"""JSON that every parser reads."""

from __future__ import annotations

import json

import pytest

from agentgen.cli.answer import answer, wants_json


def test_what_json_has_not_becomes_null(capsys: pytest.CaptureFixture[str]) -> None:
    answer({"a": float("nan"), "b": [1.5, float("inf")], "c": {"d": (float("-inf"), "µ")}, "e": True})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"a": None, "b": [1.5, None], "c": {"d": [None, "µ"]}, "e": True}
    assert "NaN" not in printed
    assert printed.endswith("}\n")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("solve x --json", True),
        ("--json", True),
        ("solve --json=true", True),
        ("solve --json=False", False),
        ("solve --jason", False),
        ("a -- --json", False),
    ],
)
def test_json_is_asked_for_before_the_double_dash(line: str, wanted: bool) -> None:
    assert wants_json(line.split()) is wanted


def test_no_text_in_it_controls_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"idea": "\x1b[2J\x9b5m\u202e\u2028\U000e0041 µ 日本"}
    answer(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert not set("\x1b\x9b\u202e\u2028\U000e0041") & set(printed)
    assert "µ 日本" in printed
