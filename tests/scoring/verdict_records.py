"""Verdicts as the judge and a run leave them."""

from __future__ import annotations

from agentgen.records.trial import Outcome, Speedup
from agentgen.scoring.verdicts import Searched, Verdict

STAGES = ("start", "build", "check", "state", "audit", "time", "general")


def race(baseline: str, ratio: float) -> Speedup:
    """Known to 1%, and faster than that margin or not."""
    return Speedup(
        baseline=baseline,
        baseline_us=100.0,
        ratio=ratio,
        low=0.99 * ratio,
        high=1.01 * ratio,
        faster=0.99 * ratio > 1.01,
    )


def passed(best: float | None = None, eager: float | None = None, run: Searched | None = None) -> Verdict:
    """Accepted; raced where a speedup is given."""
    races = (race("compile_default", best), race("eager", eager)) if best and eager else ()
    return Verdict(accepted=True, outcome=Outcome.PASSED, races=races, speedup=best, run=run)


def refused(outcome: Outcome, last: str = "check", *, run: Searched | None = None) -> Verdict:
    """Refused, for one reason, at a stage; "" stands for the screen."""
    came = STAGES[: STAGES.index(last) + 1] if last else ()
    return Verdict(accepted=False, outcome=outcome, reasons=("because",), seconds=dict.fromkeys(came, 0.5), run=run)


def spent(usd: float | None, seconds: float = 10.0, tokens: int | None = 1000) -> Searched:
    """Returns what a run took."""
    return Searched(id="r1", models=("m",), candidates=3, accepted=1, seconds=seconds, tokens=tokens, cost_usd=usd)
