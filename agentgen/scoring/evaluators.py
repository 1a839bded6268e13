"""What is said of one verdict: of a case of an evaluation, or of a single trial inside a search (`Verdict.of(trial)`).

An assertion (bool) is what has to hold: `batch.as_expected`, and with it the exit code, asks for every one of them. A
score (float) or a label (str) is what was found, good or bad. So a dataset says by its choice of evaluators what it
demands. `Faster` is a score of 0 or 1 and no assertion on purpose: a kernel that is right and honest but no faster is a
result, not a fault, and whether it was faster before is the question of a comparison with another report. What was not
measured has no score, rather than a number that stands for none.

Which outcome means what, by the order in which the judge looks (screen, build, check, state, audit, time):

    built     all but SCREENED_OUT and BUILD_FAILED; what crashed, ran out of time or memory or cheated only if it came
              as far as the checks
    correct   PASSED; CHEATED if it came as far as the audit, for until then all its answers had been right
    honest    all but SCREENED_OUT, whose text reaches for what no kernel needs, and CHEATED

What was never looked at is not seen to be correct, and is not caught cheating. Accepted means correct and honest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pydantic_evals.evaluators import EvaluationReason, Evaluator, EvaluatorContext

from agentgen.records.trial import EAGER, Outcome
from agentgen.records.trial import Speedup as Race
from agentgen.scoring.verdicts import Verdict

Context = EvaluatorContext[Any, Verdict, Any]
Said = Mapping[str, EvaluationReason]
_UNBUILT = (None, Outcome.SCREENED_OUT, Outcome.BUILD_FAILED)
_AT_ANY_STAGE = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY, Outcome.CHEATED)
_DISHONEST = (Outcome.SCREENED_OUT, Outcome.CHEATED)
NO_KERNEL = "no kernel"
"""Stands for the outcome where no candidate was evaluated."""
REFUSED = "refused"
"""Stands for the outcome that is due where any refusal will do."""


@dataclass
class Decision(Evaluator[Any, Verdict, Any]):
    """Is it accepted, or refused, as it is to be?"""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Says what came of it."""
        found, wanted = ctx.output, due(ctx)
        said = f"{outcome(found)}: {'; '.join(found.reasons)}" if found.reasons else outcome(found)
        return EvaluationReason(found.accepted is wanted.accepted, said)


@dataclass
class Cause(Evaluator[Any, Verdict, Any]):
    """Is it refused by the check that is there for it? The screen may always come first."""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Says which checks failed."""
        found, wanted = ctx.output, due(ctx)
        right = found.accepted or found.caused_by(wanted) or "screen" in found.by
        return EvaluationReason(right, f"by {', '.join(found.by) or outcome(found)}")


@dataclass
class OutcomeIs(Evaluator[Any, Verdict, Any]):
    """The outcome as a label, and where a verdict is due: is it that outcome? One that names none is met by any outcome
    that is accepted, or refused, as it says."""

    def evaluate(self, ctx: Context) -> Said:
        """Says the outcome and its first reason."""
        found, wanted = ctx.output, ctx.expected_output
        said = {"outcome": EvaluationReason(outcome(found), _first(found))}
        if wanted is None:
            return said
        right = found.outcome is wanted.outcome if wanted.outcome else found.accepted is wanted.accepted
        return {**said, "OutcomeIs": EvaluationReason(right, f"{outcome(found)}, due: {outcome_due(wanted)}")}


@dataclass
class Builds(Evaluator[Any, Verdict, Any]):
    """Does it compile, load and find its weights?"""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Says what the compiler said."""
        found = ctx.output
        came = found.outcome not in _AT_ANY_STAGE or "check" in found.seconds
        built = found.outcome not in _UNBUILT and came
        return EvaluationReason(built, None if built else _why(found))


@dataclass
class Correct(Evaluator[Any, Verdict, Any]):
    """Was every answer right that it gave?"""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Says what was wrong, or why nobody knows."""
        found = ctx.output
        right = found.accepted or (found.outcome is Outcome.CHEATED and "audit" in found.seconds)
        return EvaluationReason(right, None if right else _why(found))


@dataclass
class Honest(Evaluator[Any, Verdict, Any]):
    """Was it not caught cheating?"""

    def evaluate(self, ctx: Context) -> EvaluationReason:
        """Says how it cheats."""
        found = ctx.output
        honest = found.outcome not in _DISHONEST
        return EvaluationReason(honest, None if honest else _why(found))


@dataclass
class Faster(Evaluator[Any, Verdict, Any]):
    """1: faster than the best baseline beyond doubt, by the interval of the race. 0: not, or refused."""

    def evaluate(self, ctx: Context) -> Said:
        """Says the interval. Nothing of a kernel that was accepted and could not be timed."""
        found = ctx.output
        if not found.accepted:
            return {"Faster": EvaluationReason(0.0, _why(found))}
        race = found.against()
        return {"Faster": EvaluationReason(float(race.faster), _raced(race))} if race else {}


@dataclass
class Speedup(Evaluator[Any, Verdict, Any]):
    """Baseline time over its own, against the best baseline and against eager torch."""

    def evaluate(self, ctx: Context) -> Said:
        """Says the intervals."""
        raced = {"Speedup": ctx.output.against(), "Speedup over eager": ctx.output.against(EAGER)}
        races = {name: race for name, race in raced.items() if race}
        return _scores({n: race.ratio for n, race in races.items()}, {n: _raced(race) for n, race in races.items()})


@dataclass
class RooflineFraction(Evaluator[Any, Verdict, Any]):
    """The least time that the device could take over the time taken."""

    def evaluate(self, ctx: Context) -> Said:
        """Says nothing of a kernel that was not timed."""
        return _scores({"RooflineFraction": ctx.output.roofline_fraction})


@dataclass
class Accuracy(Evaluator[Any, Verdict, Any]):
    """The most accurate arithmetic whose gates are met everywhere, and the worst error over what is allowed."""

    def evaluate(self, ctx: Context) -> Said:
        """Says those of the two that were measured."""
        found = ctx.output
        reached = {"Accuracy": EvaluationReason(found.accuracy_class.value)} if found.accuracy_class else {}
        return {**reached, **_scores({"share of the error allowed": found.share_of_limit})}


@dataclass
class Cost(Evaluator[Any, Verdict, Any]):
    """What a run took to solve its problem, or the judge to judge a kernel. An unknown price is no score, not 0."""

    def evaluate(self, ctx: Context) -> Said:
        """Says USD, tokens, seconds and candidates."""
        found, run = ctx.output, ctx.output.run
        if run is None:
            return _scores({"seconds": sum(found.seconds.values()) if found.seconds else None})
        return _scores(
            {"USD": run.cost_usd, "tokens": run.tokens, "seconds": run.seconds, "candidates": run.candidates}
        )


EVALUATORS = (
    *(Decision, Cause, OutcomeIs),
    *(Builds, Correct, Honest, Faster, Speedup, RooflineFraction, Accuracy, Cost),
)


def due(case: Any) -> Verdict:
    """Returns the verdict that a case expects.

    Raises:
        ValueError: it expects none.
    """
    if case.expected_output is None:
        raise ValueError(f"case {case.name} has no expected_output")
    return case.expected_output


def outcome(found: Verdict) -> str:
    """Returns the outcome of a verdict in one word or two."""
    return found.outcome.value if found.outcome else NO_KERNEL


def outcome_due(wanted: Verdict) -> str:
    """Returns the outcome that a verdict asks for."""
    if wanted.outcome:
        return wanted.outcome.value
    return Outcome.PASSED.value if wanted.accepted else REFUSED


def _first(found: Verdict) -> str | None:
    return found.reasons[0] if found.reasons else None


def _why(found: Verdict) -> str:
    return f"{outcome(found)}: {found.reasons[0]}" if found.reasons else outcome(found)


def _raced(race: Race) -> str:
    return f"{race.ratio:.3f} [{race.low:.3f}, {race.high:.3f}] against {race.baseline}"


def _scores(values: Mapping[str, float | None], reasons: Mapping[str, str] = {}) -> Said:
    """Returns what was measured. Infinity counts as not: a report that holds it cannot be read again."""
    measured = {name: value for name, value in values.items() if value is not None and isfinite(value)}
    return {name: EvaluationReason(value, reasons.get(name)) for name, value in measured.items()}
