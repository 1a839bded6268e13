"""Reports made of records: what goes at cases came to, for the tests of the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_evals.evaluators import EvaluationResult, EvaluatorFailure, EvaluatorSpec
from pydantic_evals.reporting import EvaluationReport, ReportCase, ReportCaseFailure

from agentgen.records.trial import Outcome, Speedup
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import About, Inputs, Solve, Subject
from agentgen.scoring.verdicts import Searched, Verdict

Go = Verdict | str
"""What came of one go: a verdict, or how the machine failed."""
MACHINE = {
    "device_type": "cpu",
    "device": "a CPU",
    "cores": 2,
    "last_level_cache_bytes": 1 << 20,
    "torch": "2",
    "triton": None,
}


def race(ratio: float, half: float = 0.002, baseline: str = "eager") -> Speedup:
    """Returns a race against a baseline of 1 ms, with so much on each side of its ratio, relative to it."""
    low, high = ratio * (1 - half), ratio * (1 + half)
    return Speedup(baseline=baseline, baseline_us=1000.0, ratio=ratio, low=low, high=high, faster=low > 1.01)


def timed(ratio: float, half: float = 0.002, *, kernel: str = "k", baseline: str = "eager") -> Verdict:
    """Returns the verdict on a kernel that was accepted and raced."""
    one = race(ratio, half, baseline)
    return Verdict(accepted=True, outcome=Outcome.PASSED, speedup=ratio, races=(one,), candidate=kernel)


def refused(outcome: Outcome = Outcome.WRONG_VALUES, why: str = "main: too large an error") -> Verdict:
    """Returns the verdict on a kernel that was not accepted."""
    return Verdict(accepted=False, outcome=outcome, reasons=(why,))


PASSED = Verdict(accepted=True, outcome=Outcome.PASSED)
UNSOLVED = Verdict(
    accepted=False,
    reasons=("no candidate was evaluated",),
    run=Searched(id="r", models=("m",), candidates=0, accepted=0, seconds=1.0, tokens=None, cost_usd=None),
)
KERNEL = Subject(problem=Path("p"), kernel=Path("cpp/k.py"))
PROBLEM = Solve(problem=Path("p"))


def report(
    found: Mapping[str, Sequence[Go]],
    *,
    inputs: Inputs = KERNEL,
    due: bool | None = True,
    asserts: tuple[str, ...] = ("Decision",),
    raising: tuple[str, ...] = (),
    devices: tuple[Any, ...] = ("cpu",),
    machine: dict[str, Any] | None = MACHINE,
    sandbox: str | None = "jail",
) -> Report:
    """Returns the report of a dataset: for each case, what came of its goes.

    Args:
        found: Goes by the name of the case.
        inputs: Of every case.
        due: Whether each is to be accepted; None: the dataset does not say.
        asserts: Assertions, all of which hold where a verdict is the one that is due.
        raising: Evaluators that raised.
        devices: Where the cases can be decided.
        machine: Where it was.
        sandbox: What the kernels ran in.
    """
    whole: Report = EvaluationReport(
        name="small", cases=[], experiment_metadata={"machine": machine, "sandbox": sandbox}
    )
    expected = None if due is None else Verdict(accepted=due)
    about = About(devices=devices)
    for name, goes in found.items():
        for nth, go in enumerate(goes, 1):
            named: dict[str, Any] = {"name": name} if len(goes) == 1 else {"name": f"{name} [{nth}/{len(goes)}]"}
            named |= {"source_case_name": name if len(goes) > 1 else None, "inputs": inputs, "metadata": about}
            named |= {"expected_output": expected}
            if isinstance(go, str):
                failure = ReportCaseFailure[Inputs, Verdict, About](error_message=go, error_stacktrace="", **named)
                whole.failures.append(failure)
                continue
            whole.cases.append(_case(go, asserts, raising, named))
    return whole


def _case(
    go: Verdict, asserts: tuple[str, ...], raising: tuple[str, ...], named: dict[str, Any]
) -> ReportCase[Inputs, Verdict, About]:
    expected = named["expected_output"]
    right = go.accepted is (expected.accepted if expected else True)
    return ReportCase[Inputs, Verdict, About](
        output=go,
        metrics={},
        attributes={},
        scores={},
        labels={},
        assertions={
            name: EvaluationResult(name=name, value=right, reason=None, source=EvaluatorSpec(name=name, arguments=None))
            for name in asserts
            if name not in raising
        },
        evaluator_failures=[
            EvaluatorFailure(
                name=name,
                error_message="it raised",
                error_stacktrace="",
                source=EvaluatorSpec(name=name, arguments=None),
            )
            for name in raising
        ],
        task_duration=1.0,
        total_duration=1.0,
        **named,
    )
