"""What a search tells whoever watches it. Told for what the store already held, too, so a resumed display is whole.

Not for decisions: the ledger alone says where a run stands.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatRequest
from agentgen.records.idea import Idea
from agentgen.records.run import Cap, RunStatus
from agentgen.records.score import Score


@dataclass(frozen=True)
class JudgeStarting:
    """The judge is started: it looks at the device and times the baselines."""


@dataclass(frozen=True)
class JudgeReady:
    """It knows the device now."""


@dataclass(frozen=True)
class RoundStarted:
    """A round begins; the first is 1."""

    round: int


@dataclass(frozen=True)
class IdeasAsked:
    """Ideas for one parent are asked for, or were."""

    round: int
    request: ChatRequest


@dataclass(frozen=True)
class IdeaProposed:
    """An idea was kept; one that repeats another (`Idea.same_as`) will not be implemented."""

    round: int
    idea: Idea


@dataclass(frozen=True)
class SourceAsked:
    """A first implementation or a repair is asked for, or was."""

    round: int
    request: ChatRequest


@dataclass(frozen=True)
class RequestSent:
    """A model works on a request, which may be asked for the second or third time."""

    request: ChatRequest


@dataclass(frozen=True)
class RequestOver:
    """It does not any more: it has answered, has failed, or somebody will answer later."""

    request: ChatRequest


@dataclass(frozen=True)
class Used:
    """What the replies of a run have taken, told where it has caps: at the beginning, and as replies are stored."""

    tokens: int
    """As the cap counts them: estimated where a reply does not say."""
    usd: float
    about: frozenset[Cap]
    """Those of which a part is estimated, so that the whole is not known."""


@dataclass(frozen=True)
class CandidateWritten:
    """A candidate is in the ledger and will be evaluated."""

    round: int
    candidate: Candidate


@dataclass(frozen=True)
class StageStarted:
    """The judge began a stage (`records.trial.Stage`) of an evaluation; or is opened, or waits for the device, before
    it."""

    candidate_id: str
    stage: str


@dataclass(frozen=True)
class TrialDone:
    """A candidate has its trial."""

    round: int
    score: Score


@dataclass(frozen=True)
class BranchEnded:
    """No usable answer will come to this request."""

    request: ChatRequest
    reason: str


@dataclass(frozen=True)
class Enough:
    """The search ends before its plan does."""

    reason: str


@dataclass(frozen=True)
class RunWaiting:
    """The run can go no further without these."""

    answers: int
    """Requests without a reply."""
    evaluations: int
    """Candidates whose device is not on this machine."""


@dataclass(frozen=True)
class AnswersAwaited:
    """The command stays until somebody has answered."""

    folders: tuple[str, ...]
    """Mailboxes."""


@dataclass(frozen=True)
class RunEnded:
    """The search returned or raised; `WAITING` and `STOPPED` can be resumed."""

    status: RunStatus


One = (
    JudgeStarting
    | JudgeReady
    | RoundStarted
    | IdeasAsked
    | IdeaProposed
    | SourceAsked
    | RequestSent
    | RequestOver
    | Used
    | CandidateWritten
    | StageStarted
    | TrialDone
    | BranchEnded
    | Enough
    | RunWaiting
    | AnswersAwaited
    | RunEnded
)
"""Something that happens by itself."""


@dataclass(frozen=True)
class Recalled:
    """What the store held of rounds that are settled, all at once."""

    told: tuple[One, ...]


Event = One | Recalled
