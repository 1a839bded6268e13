"""Makes a source smaller while something about it stays as it is.

1. Statements are left out, the longest first, at any depth.
2. Lines are left out, half of them, a quarter, ... one (ddmin: Zeller and Hildebrandt, IEEE TSE 28, 2002; of which only
   the complements, as nearly all smaller sources that still fail the same way are).

What is no Python any more is not even tried, unless the source was none. Own code: the libraries are not kept any more
(picire, 2021), or bring much that is not needed here (shrinkray: a screen of its own, bindings of a language model).
"""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentgen.records.trial import Trial
from agentgen.scoring.causes import plain_reason
from agentgen.scoring.verdicts import Verdict


@dataclass(frozen=True)
class Shrunk:
    """The smallest that was found."""

    source: str
    tries: int
    finished: bool
    """Leaving out no single line more would do; False: a limit came first."""


class _Enough(Exception):
    """A limit is reached."""


class _Search:
    """The best so far."""

    def __init__(self, source: str, same: Callable[[str], bool], tries: int, minutes: float) -> None:
        self.best = source
        self.tries = 0
        self._same = same
        self._most = tries
        self._end_s = time.monotonic() + 60 * minutes
        self._python = _parses(source)
        self._seen = {source}

    def take(self, text: str) -> bool:
        """Takes a text if it is still the same."""
        if text in self._seen or (self._python and not _parses(text)):
            return False
        if self.tries == self._most or time.monotonic() > self._end_s:
            raise _Enough
        self._seen.add(text)
        self.tries += 1
        if self._same(text):
            self.best = text
            return True
        return False


def shrink(source: str, same: Callable[[str], bool], *, tries: int, minutes: float) -> Shrunk:
    """Returns a smaller source of which `same` holds, as it does of the source.

    Args:
        source: what is to be smaller.
        same: whether a text still does what matters.
        tries: how often `same` may be asked.
        minutes: how long all may take; an answer that is waited for then still counts.
    """
    search = _Search(source, same, tries, minutes)
    try:
        while any(search.take(text) for text in _without_a_statement(search.best)):
            pass
        _leave_lines_out(search)
    except _Enough:
        return Shrunk(search.best, search.tries, finished=False)
    return Shrunk(search.best, search.tries, finished=True)


def shrink_failure(
    source: str, ask: Callable[[str, bool], Trial], wanted: Verdict, *, tries: int, minutes: float
) -> Shrunk | None:
    """Returns a smaller kernel that is refused as the source is: for the same cause, in the same words. The source
    itself where there is none; None where it is not refused as it should be.

    Another fault that shows in the same words may take the place of the first.

    Args:
        source: of a kernel.
        ask: judges a source, timed or not.
        wanted: the verdict that is due.
        tries: how often a smaller source may be judged.
        minutes: how long that may take.
    """

    def reason(text: str, timing: bool) -> str | None:
        trial = ask(text, timing)
        due = not trial.accepted and Verdict.of(trial).caused_by(wanted)
        return plain_reason(trial.reasons) if due else None

    # Most failures show before anything is timed, and that takes longest.
    timing = (first := reason(source, False)) is None
    said = reason(source, True) if timing else first
    if said is None:
        return None
    small = shrink(source, lambda text: reason(text, timing) == said, tries=tries, minutes=minutes)
    holds = small.source == source or reason(small.source, True) == said
    return small if holds else Shrunk(source, small.tries, small.finished)


def _without_a_statement(source: str) -> Iterator[str]:
    if not _parses(source):
        return
    lines = source.splitlines(keepends=True)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    spans = {(_first_line(node) - 1, node.end_lineno or node.lineno) for node in nodes}
    for first, end in sorted(spans, key=lambda span: span[0] - span[1]):
        yield "".join(lines[:first] + lines[end:])


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _leave_lines_out(search: _Search) -> None:
    size = len(search.best.splitlines())
    while size:
        start, before = 0, search.best
        while start < len(lines := search.best.splitlines(keepends=True)):
            if not search.take("".join(lines[:start] + lines[start + size :])):
                start += size
        if size > 1 or search.best == before:
            size //= 2


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
