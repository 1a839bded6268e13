"""What an evaluation has seen: checks with their evidence, and the rejection that ends it.

A check is a function with a name. Its docstring says what it catches and what it does not; `agentgen verify --explain`
prints that. It returns its evidence, or raises `Rejected`:

    @check("byte floor")
    def above_floor(median_us: float, floor_us: float) -> str: ...

    above_floor(findings, median_us, floor_us)
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, ParamSpec

from agentgen.records.trial import Accuracy, Check, Outcome

P = ParamSpec("P")

CATALOGUE: dict[str, str] = {}
"""Name of every check -> what its docstring says, in the order in which modules define them."""


class Rejected(Exception):
    """The candidate is at fault. Ends the evaluation; becomes the trial's outcome."""

    def __init__(self, outcome: Outcome, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.outcome = outcome
        self.reasons = reasons


@dataclass(frozen=True)
class NotGated:
    """A check's evidence where it decides nothing: it was skipped, or what it saw is only reported."""

    evidence: str


@dataclass
class Findings:
    """What an evaluation has seen so far; becomes the trial."""

    accuracy: list[Accuracy] = field(default_factory=list)
    _checks: dict[str, tuple[Check, int]] = field(default_factory=dict)

    @property
    def checks(self) -> list[Check]:
        """One line per check, in the order of their first look; of one that looked again, its last evidence."""
        return [_counted(check, times) for check, times in self._checks.values()]

    def note(self, name: str, passed: bool | None, evidence: str) -> None:
        """Notes what a check saw; `passed` is None where nothing was decided."""
        _, times = self._checks.get(name, (None, 0))
        self._checks[name] = Check(name=name, passed=passed, evidence=evidence), times + 1


def _counted(check: Check, times: int) -> Check:
    if times == 1:
        return check
    return check.model_copy(update={"evidence": f"{check.evidence} (looked {times} times)"})


class Named(Generic[P]):
    """A check as it is called: with the findings first, which take its evidence or its failure."""

    def __init__(self, name: str, look: Callable[P, str | NotGated], where: str = "") -> None:
        self.name = name
        self._look = look
        self._where = where

    def at(self, where: str) -> Named[P]:
        """Returns the same check with a line of its own for a place: a workload."""
        return Named(self.name, self._look, f": {where}")

    def __call__(self, findings: Findings, *args: P.args, **kwargs: P.kwargs) -> None:
        """Looks.

        Raises:
            Rejected: as the check's own function.
        """
        name = self.name + self._where
        try:
            seen = self._look(*args, **kwargs)
        except Rejected as rejected:
            findings.note(name, False, "; ".join(rejected.reasons))
            raise
        if isinstance(seen, NotGated):
            findings.note(name, None, seen.evidence)
        else:
            findings.note(name, True, seen)


def check(name: str) -> Callable[[Callable[P, str | NotGated]], Named[P]]:
    """Names a check and keeps its docstring for `--explain`."""

    def register(look: Callable[P, str | NotGated]) -> Named[P]:
        CATALOGUE[name] = _prose(inspect.getdoc(look) or "")
        return Named(name, look)

    return register


def _prose(docstring: str) -> str:
    """Returns a docstring's paragraphs, one line each, without its sections on arguments and exceptions."""
    text = re.split(r"\n\n(?:Args|Raises|Returns):\n", docstring)[0]
    return "\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
