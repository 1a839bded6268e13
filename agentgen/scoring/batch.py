"""Evaluates a dataset: all of its cases, one after the other on each device, with one open judge there at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_evals.reporting import EvaluationReport

from agentgen.errors import StoreUnavailable
from agentgen.scoring.benches import Bench
from agentgen.scoring.cases import About, Cases, Inputs
from agentgen.scoring.hall import SECONDS, Hall, OnFailure, OnVerdict, nothing
from agentgen.scoring.journal import Journal
from agentgen.scoring.verdicts import Verdict

Report = EvaluationReport[Inputs, Verdict, About]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Report)


def evaluate(
    cases: Cases,
    benches: Sequence[Bench],
    journal: Journal,
    on_verdict: OnVerdict,
    on_failure: OnFailure = nothing,
    *,
    repeat: int = 1,
    limit_s: float | None = None,
) -> Report:
    """Returns the report over all cases. A case that the machine failed is among the report's failures.

    Args:
        cases: What is to be done.
        benches: Where, one case at a time at each. They are closed in the end.
        journal: Of what is finished already, and then of this.
        on_verdict: Told each verdict as it comes, in this thread.
        on_failure: Told why a case has none, likewise.
        repeat: How often each case is done.
        limit_s: How long the judging of one kernel may take; None: as long as it does.
    """
    hall = Hall(benches, cases, repeat, journal, on_verdict, on_failure, limit_s)
    try:
        report = cases.evaluate_sync(
            hall.judge, name=cases.name, task_name="evaluate", lifecycle=hall.visit, progress=False, repeat=repeat
        )
    finally:
        hall.close()
    for case in report.cases:
        # As it was measured at the bench, perhaps by a process that was killed; the rest is mostly the wait for one.
        case.task_duration = case.total_duration = case.attributes.pop(SECONDS)
    machine = hall.machine.model_dump(mode="json") if hall.machine else None
    report.experiment_metadata = {**(report.experiment_metadata or {}), "machine": machine}
    return report


def as_expected(report: Report) -> bool:
    """Whether every case ran, and every assertion about it holds.

    Scores and labels are not asked: a dataset demands the assertions that it lists. With `Correct` an unsolved problem
    is not as expected; a kernel that is no faster always is, for `Faster` is a score. An evaluator that raised (where
    the verdict that is due is missing, say) is not as expected either: its assertion was never made.
    """
    raised = report.report_evaluator_failures or any(case.evaluator_failures for case in report.cases)
    holds = all(assertion.value for case in report.cases for assertion in case.assertions.values())
    return holds and not raised and not report.failures


def save(report: Report, path: Path) -> None:
    """Writes a report as JSON, in the place of another one once it is whole.

    Raises:
        StoreUnavailable: it cannot be written.
    """
    written = _ADAPTER.dump_json(report, indent=1) + b"\n"
    target = path.resolve()  # what a link leads to is replaced, and not the link
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.exists() and not target.is_file():  # a pipe, or a terminal
            target.write_bytes(written)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(written)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"the report cannot be written to {path}: {error.strerror or error}") from error


def read(path: Path) -> Report:
    """Returns a report that was saved."""
    return parse(path.read_bytes())


def parse(written: bytes) -> Report:
    """Returns a report from what was written."""
    return _ADAPTER.validate_json(written)
