"""Sources become smaller, and no smaller than what is looked for in them needs."""

from __future__ import annotations

import pytest
from past_runs import kernel, trial

from agentgen.records.trial import Outcome, Trial
from agentgen.scoring.shrinking import shrink, shrink_failure
from agentgen.scoring.verdicts import Verdict

SOURCE = '''"""A kernel."""
import math
import torch

CODE = """
void unused() {}
void wrong() { out[0] = 1; }
"""


def helper(x):
    # of no use
    return x


class ModelNew:
    def __init__(self):
        self.a = 1
        self.b = 2

    @torch.no_grad()
    def forward(self, x):
        y = helper(x)
        return wrong(y)
'''
WANTED = Verdict(accepted=False, outcome=Outcome.CRASHED, reasons=("division by N",))


def needed(text: str) -> bool:
    return "class ModelNew" in text and "void wrong" in text


def test_only_what_is_needed_is_left() -> None:
    small = shrink(SOURCE, needed, tries=1000, minutes=1)
    assert small.finished
    shorter = [_without(small.source, line) for line in range(len(small.source.splitlines()))]
    assert not any(needed(text) and _parses(text) for text in shorter)
    assert len(small.source.splitlines()) <= 5


def _without(text: str, line: int) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[:line] + lines[line + 1 :])


def _parses(text: str) -> bool:
    try:
        compile(text, "text", "exec")
    except SyntaxError:
        return False
    return True


def test_what_is_no_python_is_not_tried() -> None:
    asked: list[str] = []

    def same(text: str) -> bool:
        asked.append(text)
        return needed(text)

    small = shrink(SOURCE, same, tries=1000, minutes=1)
    assert small.tries == len(asked) == len(set(asked))
    assert all(_parses(text) for text in asked)


def test_a_source_that_is_no_python_is_shrunk_by_lines() -> None:
    small = shrink("a\ndef (\nb\nc\n", lambda text: "def (" in text, tries=100, minutes=1)
    assert small.source == "def (\n"


@pytest.mark.parametrize(("tries", "minutes", "asked"), [(3, 1.0, 3), (100, 0.0, 0)])
def test_a_limit_ends_it_with_the_best_so_far(tries: int, minutes: float, asked: int) -> None:
    small = shrink(SOURCE, needed, tries=tries, minutes=minutes)
    assert not small.finished
    assert small.tries == asked
    assert needed(small.source)


def crash(text: str) -> Trial:
    """Divides by a number that is none: line of the sign of division, as a judge would tell."""
    place = text[: text.index("/")].count("\n") if "/" in text else 0
    return trial(kernel(text), Outcome.CRASHED, f"division by {place}" if "/" in text else "no division")


def test_a_failure_keeps_its_reason() -> None:
    small = shrink_failure("a = 1\nb = a / 0\nc = 2\n", lambda text, _: crash(text), WANTED, tries=50, minutes=1)
    assert small is not None
    assert small.source == "b = a / 0\n"


def test_what_does_not_fail_as_it_should_is_left_alone() -> None:
    assert shrink_failure("a = 1\n", lambda text, _: crash(text), WANTED, tries=50, minutes=1) is None


def test_it_is_timed_only_where_the_failure_shows_nowhere_else() -> None:
    timed: list[bool] = []

    def ask(text: str, timing: bool) -> Trial:
        timed.append(timing)
        return crash(text) if timing else trial(kernel(text), Outcome.PASSED)

    small = shrink_failure("a = 1\nb = a / 0\n", ask, WANTED, tries=50, minutes=1)
    assert small is not None
    assert small.source == "b = a / 0\n"
    assert timed[0] is False
    assert all(timed[1:])


def test_a_smaller_one_that_fails_otherwise_when_it_is_timed_is_not_taken() -> None:
    def ask(text: str, timing: bool) -> Trial:
        return trial(kernel(text), Outcome.PASSED) if timing else crash(text)

    small = shrink_failure("a = 1\nb = a / 0\n", ask, WANTED, tries=50, minutes=1)
    assert small is not None
    assert small.source == "a = 1\nb = a / 0\n"
