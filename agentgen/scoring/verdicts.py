"""Verdict: what became of one case, a kernel that was judged or a problem that was to be solved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentgen.records.base import Record
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome, Speedup, Trial
from agentgen.scoring.causes import plain_reason


class Searched(Record):
    """A run that was to solve a problem: what it took and made."""

    id: str
    models: tuple[str, ...]
    candidates: int
    accepted: int
    seconds: float
    """Wall time, over all evaluations that worked on it."""
    tokens: int | None
    """None, as the price: of some reply it is not known."""
    cost_usd: float | None


class Verdict(Record):
    """What became of it, or is to become of it."""

    accepted: bool
    outcome: Outcome | None = None
    """Of the kernel; of a problem, of its best kernel. None: no kernel was even written."""
    by: tuple[str, ...] = ()
    """Checks that failed, in full ("values: main"); of an expected verdict, those of which one is to fail, wherever
    ("values"). Empty: any, or none by name."""
    reasons: tuple[str, ...] = ()
    """Of an expected verdict: what the first one is to be, without numbers and paths (`scoring.causes`)."""
    seconds: Mapping[str, float] = {}
    """By stage."""
    median_us: float | None = None
    speedup: float | None = None
    """Against the best baseline raced; None where it was not timed."""
    races: tuple[Speedup, ...] = ()
    """Against each baseline, the fastest baseline first."""
    roofline_fraction: float | None = None
    accuracy_class: Arithmetic | None = None
    share_of_limit: float | None = None
    """The worst error over what is allowed, over all families that are gated; None: not measured, or not finite."""
    candidate: str | None = None
    """Id of the kernel."""
    run: Searched | None = None
    """Of a problem only."""

    def caused_by(self, expected: Verdict) -> bool:
        """Whether the refusal is the one that was expected."""
        named = [found for found in self.by for name in expected.by if found == name or found.startswith(f"{name}: ")]
        said = not expected.reasons or plain_reason(self.reasons) in expected.reasons
        return (bool(named) or not expected.by) and expected.outcome in (None, self.outcome) and said

    def against(self, baseline: str | None = None) -> Speedup | None:
        """Returns the race with a baseline, or with the fastest one; None where there was none."""
        return next((race for race in self.races if baseline in (None, race.baseline)), None)

    @classmethod
    def of(cls, trial: Trial, run: Searched | None = None) -> Verdict:
        """Returns the verdict of a trial: of a kernel, or of the best one of a run."""
        shares = [row.share_of_limit for row in trial.accuracy if row.gated]
        worst = max(shares, default=None)
        return cls(
            accepted=trial.accepted,
            outcome=trial.outcome,
            by=tuple(check.name for check in trial.checks if check.passed is False),
            reasons=trial.reasons,
            seconds={str(stage): spent for stage, spent in trial.seconds.items()},
            median_us=trial.timing.median_us if trial.timing else None,
            speedup=trial.speedup.ratio if trial.speedup else None,
            races=trial.speedups,
            roofline_fraction=trial.roofline_fraction,
            accuracy_class=trial.accuracy_class,
            # Infinity is written as null, and such a report could not be read again.
            share_of_limit=worst if worst is not None and worst < float("inf") else None,
            candidate=trial.candidate,
            run=run,
        )

    @classmethod
    def of_run(cls, trials: Sequence[Trial], best: Trial | None, run: Searched) -> Verdict:
        """Returns the verdict on a problem.

        Args:
            trials: of all candidates of the run.
            best: the one that stands for it; None: none was accepted, and the latest says why.
            run: what it took.
        """
        if best is not None:
            return cls.of(best, run)
        if not trials:
            return cls(accepted=False, reasons=("no candidate was evaluated",), run=run)
        accepted = [trial for trial in trials if trial.accepted]  # none could be timed
        return cls.of((accepted or list(trials))[-1], run)
