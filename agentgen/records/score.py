"""Score: what a search needs of a trial to decide by. The trial holds all the evidence, a hundred times as much."""

from __future__ import annotations

from agentgen.records.base import Record
from agentgen.records.trial import Outcome, Speedup, Trial


class Score(Record):
    """A trial in few figures."""

    candidate: str
    outcome: Outcome
    reason: str | None = None
    """The first one; None for those that passed."""
    median_us: float | None = None
    """None: not timed."""
    speedup: Speedup | None = None
    """Against the fastest baseline."""
    roofline_fraction: float | None = None

    @property
    def accepted(self) -> bool:
        """Whether the candidate passed everything that was checked."""
        return self.outcome is Outcome.PASSED

    @property
    def failed(self) -> bool:
        """Whether it is at fault: not where its device was missing."""
        return self.outcome not in (Outcome.PASSED, Outcome.NOT_RUN)

    @classmethod
    def of(cls, trial: Trial) -> Score:
        """Returns the score of a trial."""
        return cls(
            candidate=trial.candidate,
            outcome=trial.outcome,
            reason=trial.reasons[0] if trial.reasons else None,
            median_us=trial.timing.median_us if trial.timing else None,
            speedup=trial.speedup if trial.timing else None,
            roofline_fraction=trial.roofline_fraction,
        )
