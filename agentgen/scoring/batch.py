"""Judges a dataset's kernels, one after the other on each device, with one open judge there at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_evals.reporting import EvaluationReport

from agentgen.scoring.benches import Bench, Hall, OnDevice, OnVerdict, OpenJudge, nothing
from agentgen.scoring.cases import About, Kernels, Subject, Verdict

Report = EvaluationReport[Subject, Verdict, About]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Report)


def judge_all(
    dataset: Kernels,
    folder: Path,
    open_judge: OpenJudge,
    on_verdict: OnVerdict,
    devices: Sequence[str],
    at_end: OnDevice = nothing,
) -> Report:
    """Returns the report over all cases. A case that the machine failed is among the report's failures.

    Args:
        dataset: The cases.
        folder: That their paths are relative to.
        open_judge: Opens the judge of a problem on a device; on each device one at a time is open.
        on_verdict: Told each verdict as it comes, in this thread.
        devices: Where they are judged, one case at a time on each.
        at_end: Called for each device when all is judged, by the thread that opened its judges.
    """
    benches = [Bench(device, folder, open_judge, at_end) for device in devices]
    hall = Hall(benches, [case.inputs for case in dataset.cases], on_verdict)
    try:
        report = dataset.evaluate_sync(
            hall.judge, name=dataset.name, task_name="judge", lifecycle=hall.visit, progress=False
        )
    finally:
        hall.close()
    for case in report.cases:
        case.total_duration = case.task_duration  # the other is mostly the wait for a bench
    machine = hall.machine.model_dump(mode="json") if hall.machine else None
    report.experiment_metadata = {**(report.experiment_metadata or {}), "machine": machine}
    return report


def as_expected(report: Report) -> bool:
    """Whether every case ran, and every assertion about it holds."""
    return not report.failures and all(
        assertion.value for case in report.cases for assertion in case.assertions.values()
    )


def save(report: Report, path: Path) -> None:
    """Writes a report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_ADAPTER.dump_json(report, indent=1) + b"\n")


def read(path: Path) -> Report:
    """Returns a report that was saved."""
    return _ADAPTER.validate_json(path.read_bytes())
