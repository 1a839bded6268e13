"""`agentgen eval`: judges a dataset's kernels and says where the verdicts are not those that are due."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import Device, Json, Sandbox
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.errors import BadInput
from agentgen.records.run import Effort
from agentgen.report.evaluation import evaluation, summary
from agentgen.scoring import batch, cases
from agentgen.workers.local import LocalJudge

UNEXPECTED = 1


def evaluate(
    dataset: Path,
    /,
    *,
    device: Device = None,
    sandbox: Sandbox = None,
    only: Annotated[tuple[str, ...], Parameter(negative="", help="Cases whose names contain this; repeatable.")] = (),
    save: Annotated[Path | None, Parameter(help="File to write the whole report to, as JSON.")] = None,
    json: Json = False,
) -> int:
    """Judge the kernels of a dataset.

    Args:
        dataset: YAML of pydantic-evals: problem and kernel of each case, and the verdict that is due.
    """
    console = screen()
    settings = config.here(Layer(device=device, sandbox=sandbox))
    place = wiring.find_device(settings.device)
    every = cases.load(dataset)
    chosen = cases.on_device(cases.named(every, only) if only else every, wiring.device_type(place))
    if not chosen.cases:
        raise BadInput(f"{dataset} has no such case that a {wiring.device_type(place)} could decide")
    console.print(f"{every.name}: {len(chosen.cases)} of {len(every.cases)} cases on {place}")

    def open_judge(folder: Path) -> LocalJudge:
        problem = wiring.find_problem(settings, str(folder))
        return wiring.judge(settings, problem, place, wiring.find_arithmetic(settings, problem, place), Effort.QUICK)

    def on_verdict(subject: cases.Subject, verdict: cases.Verdict) -> None:
        console.print(f"{subject.kernel.parent.name}/{subject.kernel.stem}: {verdict.outcome}", style="dim")

    report = batch.judge_all(chosen, dataset.parent, open_judge, on_verdict)
    report.experiment_metadata = {**(report.experiment_metadata or {}), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    if save:
        batch.save(report, save)
    console.print(evaluation(report))
    if json:
        answer(summary(report))
    return 0 if batch.as_expected(report) else UNEXPECTED
