"""Goes: all that was found of one case, in one report or in several."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pydantic_evals.reporting import ReportCase, ReportCaseFailure

from agentgen.records.problem import DeviceType
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.faults import fault, waits
from agentgen.scoring.rates import Rate
from agentgen.scoring.verdicts import Verdict

Run = ReportCase[Inputs, Verdict, About]
Failure = ReportCaseFailure[Inputs, Verdict, About]

DUE: Final = "accepted or refused as it is due"
"""Asserted of every case, also where a dataset asserts nothing: what is not said to be refused is to be accepted."""
LONGEST: Final = 300
"""Characters of a reason: a compiler's has many."""


@dataclass(frozen=True)
class Goes:
    """All goes at one case."""

    runs: tuple[Run, ...]
    failures: tuple[Failure, ...]
    """Goes that came to no verdict: the machine failed, a problem cannot be judged, nobody has answered yet."""

    @property
    def solved(self) -> bool:
        """Whether it is a problem that was to be solved, and no kernel to be judged."""
        return isinstance(self.inputs, Solve)

    @property
    def inputs(self) -> Inputs:
        """What was given."""
        return self._first.inputs

    @property
    def due(self) -> Verdict | None:
        """The verdict that is due; None: the dataset does not say."""
        return self._first.expected_output

    @property
    def ran(self) -> Rate:
        """Goes that came to a verdict; those that wait for an answer are neither here nor there."""
        return Rate(len(self.runs), len(self.runs) + len(self.failures) - self.waiting)

    @property
    def waiting(self) -> int:
        """How many of them wait for an answer."""
        return sum(waits(failure) for failure in self.failures)

    @cached_property
    def held(self) -> dict[str, Rate]:
        """In how many goes each assertion held; one that could not be evaluated did not."""
        found: dict[str, list[bool]] = {}
        for run in self.runs:
            due = run.expected_output.accepted if run.expected_output else True
            found.setdefault(DUE, []).append(run.output.accepted is due)
            for name, assertion in run.assertions.items():
                found.setdefault(name, []).append(assertion.value)
            for failed in run.evaluator_failures:
                found.setdefault(failed.name, []).append(False)
        return {name: Rate(sum(values), len(values)) for name, values in found.items()}

    @cached_property
    def asserted(self) -> frozenset[str]:
        """What is asserted of the case, whether it held or not."""
        return frozenset(name for run in self.runs for name in run.assertions)

    @cached_property
    def raised(self) -> dict[str, str]:
        """Evaluators that raised, and what the first one of each name said."""
        failed = [failed for run in self.runs for failed in run.evaluator_failures]
        return {one.name: " ".join(one.error_message.split())[:LONGEST] for one in reversed(failed)}

    @property
    def raced(self) -> tuple[Verdict, ...]:
        """Of the goes whose kernel was accepted and timed."""
        return tuple(run.output for run in self.runs if run.output.accepted and run.output.races)

    @property
    def accepted(self) -> bool:
        """Whether a kernel was accepted in any of them."""
        return any(run.output.accepted for run in self.runs)

    @property
    def timed(self) -> bool:
        """Whether there are times, though perhaps no races: reports did not always keep those."""
        return any(run.output.accepted and run.output.median_us is not None for run in self.runs)

    def decidable(self, device: DeviceType) -> bool:
        """Whether a kind of device can do it."""
        about = self._first.metadata
        return about is None or device in about.devices

    def said(self) -> str:
        """Returns what came of it, with the first reason that there is."""
        outcomes = [str(run.output.outcome or "unsolved") for run in self.runs]
        outcomes += [fault(failure) for failure in self.failures]
        counted = Counter(outcomes)
        many = len(outcomes) > 1
        words = ", ".join(f"{outcome} in {n} of {len(outcomes)}" if many else outcome for outcome, n in counted.items())
        reasons = [failure.error_message for failure in self.failures]
        reasons += [reason for run in self.runs for reason in run.output.reasons[:1]]
        return f"{words}: {' '.join(reasons[0].split())[:LONGEST]}" if reasons else words

    @property
    def _first(self) -> Run | Failure:
        return (*self.runs, *self.failures)[0]


def by_case(*reports: Report) -> dict[str, Goes]:
    """Returns the goes at each case of reports of one dataset, by its name."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    for report in reports:
        for position, goes in enumerate((report.cases, report.failures)):
            for go in goes:
                found.setdefault(go.source_case_name or go.name, ([], []))[position].append(go)
    return {name: Goes(tuple(runs), tuple(failures)) for name, (runs, failures) in found.items()}
