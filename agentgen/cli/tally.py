"""How far an evaluation is: a line per case that is finished, and what its end means for the next time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from agentgen.cli.solve import WAITING
from agentgen.errors import ReplyPending
from agentgen.report import figures
from agentgen.scoring.batch import Report, as_expected
from agentgen.scoring.faults import MAY_PASS
from agentgen.scoring.verdicts import Verdict

UNEXPECTED = 1


class Tally:
    """Counts what is told to it."""

    def __init__(self, console: Console, total: int) -> None:
        """Takes where to show it, and how many cases there are, each as often as it is done."""
        self._console = console
        self._total = total
        self._done = 0
        self._failures: list[Exception] = []
        self.begin: Callable[[str], None] = lambda _: None
        """Starts a clock."""

    def found(self, name: str, verdict: Verdict) -> None:
        """Shows what became of a case."""
        race = verdict.against()
        speedup = f", {figures.speedup(race)}" if race else ""
        self._say(f"{name}: {verdict.outcome or 'unsolved'}{speedup}", "dim")

    def failed(self, name: str, error: Exception) -> None:
        """Shows why a case has no verdict."""
        self._failures.append(error)
        self._say(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", "yellow")

    @property
    def may_go_on(self) -> bool:
        """Whether another attempt could find what this one did not."""
        return any(isinstance(error, MAY_PASS) for error in self._failures)

    def exit_code(self, report: Report) -> int:
        """Returns 0, 1, or 75 where nothing is missing but answers."""
        if self._failures and all(isinstance(error, ReplyPending) for error in self._failures):
            return WAITING if as_expected(replace(report, failures=[])) else UNEXPECTED
        return 0 if as_expected(report) else UNEXPECTED

    def say_next(self) -> None:
        """Starts the clock of the cases that are not finished."""
        self.begin(f"{self._done} of {self._total} done, at the next")

    def _say(self, line: str, style: str) -> None:
        self._done += 1
        left = self._total - self._done
        # soft_wrap: a line of a log is a line, however wide.
        self._console.print(Text(f"[{self._done} of {self._total}, {left} left] {line}", style=style), soft_wrap=True)
        self.say_next()
