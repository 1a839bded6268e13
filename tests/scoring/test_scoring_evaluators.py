"""What each evaluator says of one verdict, and of one trial as a search has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_evals.evaluators import EvaluationReason, EvaluatorContext
from pydantic_evals.online import run_evaluators
from pydantic_evals.otel.span_tree import SpanTree
from verdict_records import passed, refused, spent

from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Accuracy as AccuracyRow
from agentgen.records.trial import Clock, Outcome, Timing, Trial
from agentgen.records.trial import Speedup as Race
from agentgen.scoring import batch
from agentgen.scoring.evaluators import (
    Accuracy,
    Builds,
    Correct,
    Cost,
    Decision,
    Faster,
    Honest,
    OutcomeIs,
    RooflineFraction,
    Speedup,
)
from agentgen.scoring.verdicts import Verdict

REPORTS = sorted((Path(__file__).parents[2] / "results" / "evals").glob("judge-*.json"))
OF_A_TRIAL = (Builds(), Correct(), Honest(), Faster(), Speedup(), RooflineFraction(), Accuracy(), Cost(), OutcomeIs())
UNWRITTEN = Verdict(accepted=False, reasons=("no candidate was evaluated",), run=spent(0.5))


def context(found: Verdict, wanted: Verdict | None = None) -> EvaluatorContext[Any, Verdict, Any]:
    return EvaluatorContext(
        name="a case",
        inputs=None,
        metadata=None,
        expected_output=wanted,
        output=found,
        duration=1.0,
        _span_tree=SpanTree(),
        attributes={},
        metrics={},
    )


def holds(evaluator: Builds | Correct | Honest, found: Verdict) -> bool:
    said = evaluator.evaluate(context(found))
    assert isinstance(said.value, bool)
    assert said.value or said.reason, "what does not hold has a reason"
    return said.value


def values(said: Any) -> dict[str, object]:
    return {name: reason.value for name, reason in said.items()}


@pytest.mark.parametrize(
    ("found", "builds", "correct", "honest"),
    [
        (passed(), True, True, True),
        (refused(Outcome.SCREENED_OUT, ""), False, False, False),
        (refused(Outcome.BUILD_FAILED, ""), False, False, True),
        (refused(Outcome.BUILD_FAILED, "check"), False, False, True),
        (refused(Outcome.NOT_RUN, "build"), True, False, True),
        (refused(Outcome.CRASHED, "build"), False, False, True),
        (refused(Outcome.CRASHED, "check"), True, False, True),
        (refused(Outcome.TIMED_OUT, "build"), False, False, True),
        (refused(Outcome.TIMED_OUT, "time"), True, False, True),
        (refused(Outcome.OUT_OF_MEMORY, "build"), False, False, True),
        (refused(Outcome.WRONG_SHAPE), True, False, True),
        (refused(Outcome.WRONG_DTYPE), True, False, True),
        (refused(Outcome.WRONG_VALUES), True, False, True),
        (refused(Outcome.WRONG_VALUES, "time"), True, False, True),
        (refused(Outcome.NONDETERMINISTIC, "state"), True, False, True),
        (refused(Outcome.CHEATED, "build"), False, False, False),
        (refused(Outcome.CHEATED, "check"), True, False, False),
        (refused(Outcome.CHEATED, "audit"), True, True, False),
        (refused(Outcome.CHEATED, "time"), True, True, False),
        (UNWRITTEN, False, False, True),
    ],
    ids=lambda case: f"{case.outcome} {' '.join(case.seconds)}" if isinstance(case, Verdict) else "",
)
def test_which_outcome_means_what(found: Verdict, builds: bool, correct: bool, honest: bool) -> None:
    assert (holds(Builds(), found), holds(Correct(), found), holds(Honest(), found)) == (builds, correct, honest)


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_accepted_means_correct_and_honest_in_all_that_was_published(path: Path) -> None:
    verdicts = [case.output for case in batch.read(path).cases]
    assert verdicts
    for found in verdicts:
        assert found.accepted is (holds(Correct(), found) and holds(Honest(), found))
        assert holds(Builds(), found) or not holds(Correct(), found)


@pytest.mark.parametrize(
    ("found", "scores"),
    [
        (passed(1.5, 3.0), {"Faster": 1.0}),
        (passed(1.001, 3.0), {"Faster": 0.0}),
        (passed(0.7, 1.1), {"Faster": 0.0}),
        (passed(), {}),
        (refused(Outcome.CHEATED, "time"), {"Faster": 0.0}),
        (UNWRITTEN, {"Faster": 0.0}),
    ],
)
def test_faster_is_beyond_doubt_and_no_assertion(found: Verdict, scores: dict[str, float]) -> None:
    said = values(Faster().evaluate(context(found)))
    assert said == scores
    assert not any(isinstance(value, bool) for value in said.values()), "a bool would decide the exit code"


def test_a_speedup_is_told_against_both_with_its_interval() -> None:
    said = Speedup().evaluate(context(passed(1.5, 3.0)))
    assert values(said) == {"Speedup": 1.5, "Speedup over eager": 3.0}
    assert said["Speedup"].reason == "1.500 [1.485, 1.515] against compile_default"


def test_what_was_not_measured_is_absent() -> None:
    for evaluator in (Speedup(), RooflineFraction(), Accuracy()):
        assert evaluator.evaluate(context(refused(Outcome.CRASHED))) == {}
        assert evaluator.evaluate(context(UNWRITTEN)) == {}
    infinite = passed().model_copy(update={"roofline_fraction": float("inf")})
    assert RooflineFraction().evaluate(context(infinite)) == {}


def test_an_unknown_price_is_no_score() -> None:
    known = values(Cost().evaluate(context(passed(run=spent(0.25)))))
    assert known == {"USD": 0.25, "tokens": 1000, "seconds": 10.0, "candidates": 3}
    assert values(Cost().evaluate(context(passed(run=spent(None, tokens=None))))) == {"seconds": 10.0, "candidates": 3}
    assert values(Cost().evaluate(context(passed(run=spent(0.0)))))["USD"] == 0.0


def test_a_kernel_costs_the_seconds_of_its_stages() -> None:
    assert values(Cost().evaluate(context(refused(Outcome.WRONG_VALUES)))) == {"seconds": 1.5}
    assert Cost().evaluate(context(passed())) == {}


@pytest.mark.parametrize(
    ("found", "wanted", "right"),
    [
        (refused(Outcome.CRASHED), Verdict(accepted=False, outcome=Outcome.CRASHED), True),
        (refused(Outcome.CRASHED), Verdict(accepted=False, outcome=Outcome.TIMED_OUT), False),
        (refused(Outcome.CRASHED), Verdict(accepted=False), True),
        (refused(Outcome.CRASHED), Verdict(accepted=True), False),
        (passed(), Verdict(accepted=True), True),
        (passed(), Verdict(accepted=False), False),
        (UNWRITTEN, Verdict(accepted=False, outcome=Outcome.CRASHED), False),
    ],
)
def test_the_outcome_is_the_one_that_is_due(found: Verdict, wanted: Verdict, right: bool) -> None:
    said = OutcomeIs().evaluate(context(found, wanted))
    assert values(said) == {"outcome": found.outcome or "no kernel", "OutcomeIs": right}


def test_without_a_verdict_that_is_due_the_outcome_is_but_a_label() -> None:
    assert OutcomeIs().evaluate(context(refused(Outcome.CRASHED))) == {
        "outcome": EvaluationReason("CRASHED", "because")
    }
    with pytest.raises(ValueError, match="no expected_output"):
        Decision().evaluate(context(passed()))


def test_a_problem_without_a_kernel_is_refused() -> None:
    said = Decision().evaluate(context(UNWRITTEN, Verdict(accepted=True)))
    assert said == EvaluationReason(False, "no kernel: no candidate was evaluated")


TIMING = Timing(
    clock=Clock.GATE,
    median_us=50.0,
    low_us=49.0,
    high_us=51.0,
    calls_per_window=10,
    windows=11,
    guests=1,
    copy_us=1.0,
)
TRIAL = Trial(
    candidate="0123456789abcdef",
    problem="square",
    arithmetic=Arithmetic.FP32,
    machine=Machine(
        device_type="cuda",
        device="a GPU",
        cores=8,
        memory_bytes=1 << 30,
        last_level_cache_bytes=1 << 20,
        torch="2",
        triton="3",
        python="3",
    ),
    outcome=Outcome.PASSED,
    accuracy=(
        AccuracyRow(
            workload="main",
            family="normal",
            draws=3,
            relative_l2=1e-6,
            gate=2e-6,
            torch_relative_l2=1e-7,
            worst_element=0.25,
        ),
    ),
    accuracy_class=Arithmetic.FP32,
    timing=TIMING,
    speedups=(Race(baseline="eager", baseline_us=100.0, ratio=2.0, low=1.9, high=2.1, faster=True),),
    roofline_fraction=0.4,
    seconds={"start": 0.25, "build": 0.5, "check": 1.0, "state": 0.25, "audit": 0.5, "time": 1.5},
)


def test_one_trial_of_a_search_is_scored_by_the_same_evaluators() -> None:
    """As a search could: no dataset, no case, no verdict that is due."""
    results, failures = asyncio.run(run_evaluators(OF_A_TRIAL, context(Verdict.of(TRIAL))))
    assert failures == []
    assert {result.name: result.value for result in results} == {
        "Builds": True,
        "Correct": True,
        "Honest": True,
        "Faster": 1.0,
        "Speedup": 2.0,
        "Speedup over eager": 2.0,
        "RooflineFraction": 0.4,
        "Accuracy": "fp32",
        "share of the error allowed": 0.5,
        "seconds": 4.0,
        "outcome": "PASSED",
    }
