"""What the judge says of many candidates, and how long it takes: one judge a problem, one candidate after the other,
each told which comes next, as in a search. A judge's program is got ready while the one before judges, as in
`agentgen eval`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby, zip_longest
from typing import Any

from mix import Entry, device_type

from agentgen.errors import MachineFailure
from agentgen.records.machine import Machine
from agentgen.records.run import Effort, Isolation
from agentgen.records.trial import Trial
from agentgen.workers.local import LocalJudge
from agentgen.workers.programs import Programs

ON_DEVICE = ("check", "state", "audit", "time", "general")
"""Stages in which the device checks or times a candidate: not those in which a guest starts or builds."""


@dataclass(frozen=True)
class Judged:
    """One candidate's evaluation."""

    name: str
    problem: str
    language: str
    honest: bool
    outcome: str | None
    accepted: bool | None
    """None: the machine failed."""
    reasons: tuple[str, ...]
    """Why it was refused."""
    failure: str | None
    stages: Mapping[str, float]
    """Seconds of each stage, by the judge."""
    seconds: float
    """Wall time from the request to the trial."""
    opened_s: float
    """Wall time that its judge took to open; 0 where that was there."""
    speedup: float | None
    machine: Machine | None

    def row(self) -> dict[str, Any]:
        """Returns what is written to a file; the machine is there once for all."""
        return {name: value for name, value in asdict(self).items() if name != "machine"}


def evaluate_all(candidates: Sequence[Entry], device: str) -> Iterator[Judged]:
    """Yields what the judge says of each, as it comes. Those of one problem are to stand together."""
    with closing(Programs(device, Isolation.JAIL)) as programs:
        for _, entries in groupby(candidates, key=lambda entry: entry.problem):
            yield from _of_one_problem(list(entries), device, programs)


def judge_of(entry: Entry, device: str, programs: Programs | None = None) -> LocalJudge:
    """Returns the judge of a candidate's problem, which opens at its first use."""
    problem = entry.stated()
    arithmetic = problem.arithmetic.on(device_type(device))
    return LocalJudge(problem, device, arithmetic, Effort.QUICK, Isolation.JAIL, programs)


def _of_one_problem(entries: Sequence[Entry], device: str, programs: Programs) -> Iterator[Judged]:
    with judge_of(entries[0], device, programs) as judge:
        start = time.perf_counter()
        judge.target()
        opened_s = time.perf_counter() - start
        for entry, then in zip_longest(entries, entries[1:]):
            yield _judged(judge, entry, then, opened_s)
            opened_s = 0.0


def _judged(judge: LocalJudge, entry: Entry, then: Entry | None, opened_s: float) -> Judged:
    start = time.perf_counter()
    trial: Trial | None = None
    failure: str | None = None
    try:
        trial = judge.evaluate(entry.candidate, then=then.candidate if then else None)
    except MachineFailure as error:  # the others are still worth their figures
        failure = f"{type(error).__name__}: {error}"
    return Judged(
        name=entry.name,
        problem=entry.place,
        language=entry.candidate.language.value,
        honest=entry.honest,
        outcome=trial.outcome.value if trial else None,
        accepted=trial.accepted if trial else None,
        reasons=trial.reasons if trial else (),
        failure=failure,
        stages={str(stage): spent for stage, spent in trial.seconds.items()} if trial else {},
        seconds=time.perf_counter() - start,
        opened_s=opened_s,
        speedup=trial.speedup.ratio if trial and trial.speedup else None,
        machine=trial.machine if trial else None,
    )
