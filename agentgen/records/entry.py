"""Entry: a kernel of the leaderboard, with its certificate, the ideas that led to it, and who had them."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import pairwise
from pathlib import PurePosixPath

from pydantic import Field, model_validator

from agentgen.records.base import Moment, Record
from agentgen.records.candidate import Candidate, Language
from agentgen.records.idea import Became, Idea
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.score import Score
from agentgen.records.trial import EAGER, Depth, Speedup, Trial


class Step(Record):
    """A kernel on the way from the reference to an entry, as its run found it."""

    candidate: str
    language: Language
    repair: int = 0
    """As of the candidate."""
    idea: Idea | None = None
    """None: a program without an idea in words."""
    change: str | None = None
    """What such a program says that it changed; None: it says nothing."""
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
    begun: Moment
    """The run."""
    model: str
    """Who wrote the kernel, as the ledger names it."""
    machine: Machine | None = None
    """Where the run's judge was; None: not known."""
    certified: Moment
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
        for faults in (_certified, _measured, _led_to):
            if fault := faults(self):
                raise ValueError(fault)
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
    def words(self) -> str | None:
        """What the kernel does, in a line: its idea's title, or what a program without one says that it changed."""
        return self.idea.title if self.idea else self.candidate.change

    @property
    def over_eager(self) -> Speedup | None:
        """The speedup over eager torch."""
        return next((found for found in self.trial.speedups if found.baseline == EAGER), None)

    @property
    def place(self) -> PurePosixPath:
        """Returns its folder within that of all entries."""
        return shelf(self.problem.name, self.trial.arithmetic, self.trial.machine) / self.id


def shelf(problem: str, arithmetic: Arithmetic, machine: Machine) -> PurePosixPath:
    """Returns the folder of the entries that are ranked together, within that of all entries."""
    device = re.sub(r"[^a-z0-9]+", "-", machine.device.lower()).strip("-") or machine.device_type
    return PurePosixPath(problem, arithmetic.value, device)


def _certified(entry: Entry) -> str | None:
    """Returns why the trial is no certificate of the kernel; None where it is one."""
    trial = entry.trial
    if trial.candidate != entry.id:
        return f"the trial is that of {trial.candidate}, and source, language and idea are {entry.id}"
    if trial.problem != entry.problem.name:
        return f"the trial is one for {trial.problem}, not for {entry.problem.name}"
    if trial.depth is not Depth.CERTIFY or not trial.accepted:
        return f"the trial is no certificate: {trial.outcome.value} at depth {trial.depth.value}"
    if trial.timing is None or trial.speedup is None:
        return "the trial has no time"
    return None


def _measured(entry: Entry) -> str | None:
    """Returns which figure nobody can have measured: entries are ranked by them."""
    trial = entry.trial
    for race in (*trial.speedups, *(near.speedup for near in trial.neighbours)):
        if not 0 < race.low <= race.ratio <= race.high:
            return "a speedup of the trial does not lie within its interval"
    if any(slower.baseline_us < faster.baseline_us for faster, slower in pairwise(trial.speedups)):
        return "the first speedup of the trial is not over the fastest baseline"
    if trial.timing and not trial.timing.low_us <= trial.timing.median_us <= trial.timing.high_us:
        return "the median of the trial does not lie within its quartiles"
    return None


def _led_to(entry: Entry) -> str | None:
    """Returns where the chain does not lead from the reference to the kernel and its author."""
    candidate, first, last = entry.candidate, entry.chain[0], entry.chain[-1]
    if last.candidate != entry.id:
        return f"the chain of ideas ends at {last.candidate}, not at {entry.id}"
    idea = last.idea.id if last.idea else None
    if (last.language, last.repair, idea) != (candidate.language, candidate.repair, candidate.idea):
        return "the chain tells another language, repair or idea than the kernel's"
    if last.written_by != entry.origin.model:
        return "the chain tells another author than the origin"
    if entry.chain[1:] and candidate.parent != entry.chain[-2].candidate:
        return "the kernel before it in the chain is not its parent"
    if first.idea and not first.repair and first.idea.parent != entry.problem.root(entry.trial.arithmetic):
        return "the first idea of the chain is none on the reference of the problem"
    if not all(_follows(before, step) for before, step in pairwise(entry.chain)):
        return "a step of the chain does not follow from the one before it"
    return None


def _follows(before: Step, step: Step) -> bool:
    """Returns whether a kernel repairs the one before it, or is of an idea that was had on that one."""
    if step.repair:
        return (step.repair, step.idea) == (before.repair + 1, before.idea)
    return step.idea is None or step.idea.parent == before.candidate


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

    date: Moment
    finding: Finding
    words: str
    """Why, in a line."""
    machine: Machine
    goes: int
    """Certificates that were made: more than one where the first looked slower."""
    median_us: float | None = None
    """Of the last one, as the speedup over its best baseline. None: it had none."""
    speedup: Speedup | None = None
