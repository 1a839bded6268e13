"""Run: one search, from its settings to where it stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from agentgen.records.base import Record
from agentgen.records.candidate import Language
from agentgen.records.machine import Target
from agentgen.records.problem import Arithmetic, Problem


class Effort(StrEnum):
    """The one dial of a user."""

    QUICK = "quick"
    FULL = "full"


class RunStatus(StrEnum):
    """Where a run stands."""

    OPEN = "open"
    WAITING = "waiting"
    """For answers in the mailbox, or for the device that its candidates run on."""
    DONE = "done"
    STOPPED = "stopped"
    """By the user or by an error; can be resumed."""


class Plan(Record):
    """How wide and deep a run searches."""

    rounds: int = Field(default=2, ge=1)
    parents: int = Field(default=3, ge=1)
    """Candidates that ideas are asked for, from the second round on."""
    ideas: int = Field(default=4, ge=1)
    """Ideas per parent in the first round."""
    next_ideas: int = Field(default=2, ge=1)
    """Ideas per parent in later rounds."""
    repairs: int = Field(default=1, ge=0)
    """How often a failing candidate goes back to the model."""


class Isolation(StrEnum):
    """How candidates are kept from the machine."""

    JAIL = "jail"
    """Namespaces, nobody's rights, seccomp, Landlock: as far as the kernel allows it."""
    DOCKER = "docker"
    """A container of Docker's, of which the engine must be there."""
    NONE = "none"
    """Plain processes that can do what the user can."""


class Run(Record):
    """A search for one problem on one device."""

    id: str
    problem: Problem
    arithmetic: Arithmetic
    device: str
    """`cpu` or `cuda:N`, as resolved at the start."""
    languages: tuple[Language, ...]
    models: tuple[str, ...]
    """As given on the command line: `recorded`, `mailbox:DIR` or a server's name for a model."""
    plan: Plan
    effort: Effort = Effort.QUICK
    created: datetime
    status: RunStatus = RunStatus.OPEN
    target: Target | None = None
    """None until a judge has looked at the device."""
