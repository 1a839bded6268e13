"""Entry: a kernel of the leaderboard, with its certificate, the ideas that led to it, and who had them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from pydantic import AwareDatetime, Field, model_validator

from agentgen.records.base import Record
from agentgen.records.candidate import Candidate, Language
from agentgen.records.idea import Became, Idea
from agentgen.records.machine import Machine
from agentgen.records.problem import Problem
from agentgen.records.score import Score
from agentgen.records.trial import Depth, Speedup, Trial

EAGER: Final = "eager"
"""The baseline that every trial races."""


class Step(Record):
    """A kernel on the way from the reference to an entry, as its run found it."""

    candidate: str
    language: Language
    repair: int = 0
    """As of the candidate."""
    idea: Idea | None = None
    """None: a program without an idea in words."""
    became: Became | None = None
    """What became of the idea, of which this is one implementation."""
    score: Score | None = None
    """None: it was not evaluated."""
    idea_by: str | None = None
    """The model, as the ledger names it. None, here and below: the ledger does not tell."""
    written_by: str | None = None


class Origin(Record):
    """Where an entry comes from."""

    run: str
    begun: AwareDatetime
    """The run."""
    model: str
    """Who wrote the kernel, as the ledger names it."""
    machine: Machine | None = None
    """Where the run's judge was; None: not known."""
    certified: AwareDatetime
    agentgen: str
    """Version of the one that certified."""
    commit: str | None = None
    """Of it; None: not known."""
    changed: bool = False
    """Files of it differed from that commit."""


class Entry(Record):
    """One kernel of the leaderboard."""

    problem: Problem
    """As it was when the kernel was certified."""
    candidate: Candidate
    trial: Trial
    """The certificate."""
    chain: tuple[Step, ...] = Field(min_length=1)
    """From the first kernel on the reference to this one."""
    origin: Origin

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Entry:
        trial = self.trial
        if trial.candidate != self.id:
            raise ValueError(f"the trial is that of {trial.candidate}, and source, language and idea are {self.id}")
        if trial.problem != self.problem.name:
            raise ValueError(f"the trial is one for {trial.problem}, not for {self.problem.name}")
        if trial.depth is not Depth.CERTIFY or not trial.accepted:
            raise ValueError(f"the trial is no certificate: {trial.outcome.value} at depth {trial.depth.value}")
        if trial.timing is None or trial.speedup is None:
            raise ValueError("the trial has no time")
        if self.chain[-1].candidate != self.id:
            raise ValueError(f"the chain of ideas ends at {self.chain[-1].candidate}, not at {self.id}")
        return self

    @property
    def id(self) -> str:
        """Content hash of source, language and idea."""
        return self.candidate.id

    @property
    def idea(self) -> Idea | None:
        """The one that the kernel implements."""
        return self.chain[-1].idea

    @property
    def over_eager(self) -> Speedup | None:
        """The speedup over eager torch."""
        return next((found for found in self.trial.speedups if found.baseline == EAGER), None)

    @property
    def place(self) -> PurePosixPath:
        """Returns its folder within that of all entries."""
        trial = self.trial
        device = re.sub(r"[^a-z0-9]+", "-", trial.machine.device.lower()).strip("-") or trial.machine.device_type
        return PurePosixPath(self.problem.name, trial.arithmetic.value, device, self.id)


class Finding(StrEnum):
    """What judging an entry again came to."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    WRONG = "wrong"
    """Not accepted any more, where it was accepted."""
    ELSEWHERE = "environment differs"
    """Another machine, or other versions of what decides times: nothing can be said of them."""
    UNTIMED = "not timed"


class Reverified(Record):
    """One time that an entry was judged again."""

    date: AwareDatetime
    finding: Finding
    words: str
    """Why, in a line."""
    machine: Machine
    goes: int
    """Certificates that were made: more than one where the first looked slower."""
    median_us: float | None = None
    """Of the last one, as the speedup over its best baseline. None: it had none."""
    speedup: Speedup | None = None
