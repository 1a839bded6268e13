"""Run: one search, from its settings to where it stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from agentgen.records.base import Record
from agentgen.records.candidate import Language
from agentgen.records.machine import Target
from agentgen.records.problem import Arithmetic, DeviceType, Problem


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
    """By the user, by an error, or by a cap (`Caps`); can be resumed."""


class Strategy(StrEnum):
    """What a search does next (`search.strategies`)."""

    IDEAS_TREE = "ideas-tree"
    """Rounds: ideas on the best kernels so far, each implemented in each language."""
    BEST_FIRST = "best-first"
    """As that, but kernels that were asked for ideas before may be asked again, the less often the more they were."""
    BEST_OF_N = "best-of-n"
    """Ideas on the reference only, none built on another."""
    REFINE = "refine"
    """One program, in the first language, made faster step by step, without ideas in words."""


class Plan(Record):
    """How a run searches, how wide and how deep."""

    strategy: Strategy = Strategy.IDEAS_TREE
    rounds: int = Field(default=2, ge=1)
    parents: int = Field(default=3, ge=1)
    """Candidates that ideas are asked for, from the second round on."""
    ideas: int = Field(default=4, ge=1)
    """Ideas per parent in the first round."""
    next_ideas: int = Field(default=2, ge=1)
    """Ideas per parent in later rounds."""
    repairs: int = Field(default=1, ge=0)
    """How often a failing candidate goes back to the model."""
    rewrites: int = Field(default=1, ge=0)
    """How often an idea is implemented anew in a language where the repairs of its code came to nothing."""
    dry_rounds: int = Field(default=3, ge=1)
    """So many rounds without a faster kernel end the search."""
    target_fraction: float = Field(default=0.95, gt=0)
    """A kernel that reaches so much of the roofline bound ends it, too."""


class Caps(Record):
    """What a run may use; None: as much as it takes. A request that could exceed one of these is not sent."""

    usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Price of all replies of the run."""
    tokens: int | None = Field(default=None, ge=1)
    """Input and output of all replies of the run, cached ones too."""
    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Wall time of one invocation; a resumed run has as many again."""
    candidates: int | None = Field(default=None, ge=1)
    """Candidates of the run that are kept, accepted or not."""


class Cap(StrEnum):
    """One cap, by the option that sets it."""

    USD = "--budget-usd"
    TOKENS = "--budget-tokens"
    MINUTES = "--budget-minutes"
    CANDIDATES = "--max-candidates"


class Capped(Record):
    """Why a search asked no further. All numbers in the unit of the cap."""

    cap: Cap
    limit: float
    spent: float
    """Of the run; minutes: of this invocation."""
    waiting: float
    """What requests that are out and not answered yet could take, at most by estimate."""
    next: float
    """What the request that was not sent could have taken, at most by estimate."""
    about: bool
    """Some of `spent` is an estimate: of a reply it is not known."""


class Isolation(StrEnum):
    """How candidates are kept from the machine."""

    JAIL = "jail"
    """Namespaces, nobody's rights, seccomp, Landlock: as far as the kernel allows it."""
    DOCKER = "docker"
    """A container of Docker's, of which the engine must be there."""
    NONE = "none"
    """Plain processes that can do what the user can."""


class Run(Record):
    """A search for one problem on one device, or on several of one kind."""

    id: str
    problem: Problem
    arithmetic: Arithmetic
    device: str
    """`cpu` or `cuda:N`, as resolved at the start; or several with commas between them, the first that of `target`."""
    languages: tuple[Language, ...]
    models: tuple[str, ...]
    """As given on the command line: `recorded`, `mailbox:DIR` or a server's name for a model."""
    plan: Plan
    caps: Caps = Caps()
    effort: Effort = Effort.QUICK
    created: datetime
    status: RunStatus = RunStatus.OPEN
    target: Target | None = None
    """None until a judge has looked at the device."""
    settled: int = 0
    """Rounds of which nothing is open any more."""

    @property
    def device_type(self) -> DeviceType:
        """What kind of device it is for, which is known before any judge has looked at one."""
        return "cpu" if self.device == "cpu" else "cuda"
