"""What the judge says of many candidates, and how long it takes: one judge a problem, one candidate after the other.

A way to evaluate them otherwise (to build one while another is timed) takes the place of `evaluate_all`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from mix import Entry, device_type

from agentgen.records.machine import Machine
from agentgen.records.run import Effort
from agentgen.workers.local import LocalJudge

ON_DEVICE = ("check", "state", "audit", "time", "general")
"""Stages in which the device checks or times a candidate: not those in which a guest starts or builds."""


@dataclass(frozen=True)
class Judged:
    """One candidate's evaluation."""

    name: str
    problem: str
    language: str
    honest: bool
    outcome: str
    accepted: bool
    stages: Mapping[str, float]
    """Seconds of each stage, by the judge."""
    seconds: float
    """Wall time from the request to the trial."""
    opened_s: float
    """Wall time that its judge took to open; 0 where that was there."""
    speedup: float | None
    machine: Machine

    def row(self) -> dict[str, Any]:
        """Returns what is written to a file; the machine is there once for all."""
        return {name: value for name, value in asdict(self).items() if name != "machine"}


def evaluate_all(candidates: Sequence[Entry], device: str) -> Iterator[Judged]:
    """Yields what the judge says of each, as it comes. Those of one problem are to stand together."""
    for _, entries in groupby(candidates, key=lambda entry: entry.problem):
        yield from _of_one_problem(list(entries), device)


def judge_of(entry: Entry, device: str) -> LocalJudge:
    """Returns the judge of a candidate's problem, which opens at its first use."""
    problem = entry.stated()
    return LocalJudge(problem, device, problem.arithmetic.on(device_type(device)), Effort.QUICK)


def _of_one_problem(entries: Sequence[Entry], device: str) -> Iterator[Judged]:
    with judge_of(entries[0], device) as judge:
        start = time.perf_counter()
        judge.target()
        opened_s = time.perf_counter() - start
        for entry in entries:
            start = time.perf_counter()
            trial = judge.evaluate(entry.candidate)
            yield Judged(
                entry.name,
                entry.place,
                entry.candidate.language.value,
                entry.honest,
                trial.outcome.value,
                trial.accepted,
                {str(stage): spent for stage, spent in trial.seconds.items()},
                time.perf_counter() - start,
                opened_s,
                trial.speedup.ratio if trial.speedup else None,
                trial.machine,
            )
            opened_s = 0.0
