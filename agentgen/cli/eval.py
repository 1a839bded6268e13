"""`agentgen eval`: judges a dataset's kernels and says where the verdicts are not those that are due."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import Devices, Json, Sandbox
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.errors import BadInput
from agentgen.records.run import Effort, Isolation
from agentgen.report.evaluation import evaluation, summary
from agentgen.scoring import batch, cases
from agentgen.workers.devices import device_type, find_devices
from agentgen.workers.local import LocalJudge
from agentgen.workers.programs import Programs

UNEXPECTED = 1


def evaluate(
    dataset: Path,
    /,
    *,
    device: Devices = None,
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
    places = find_devices(settings.device)
    kind = device_type(places[0])
    every = cases.load(dataset)
    chosen = cases.on_device(cases.named(every, only) if only else every, kind)
    if not chosen.cases:
        raise BadInput(f"{dataset} has no such case that a {kind} could decide")
    console.print(f"{every.name}: {len(chosen.cases)} of {len(every.cases)} cases on {', '.join(places)}")

    programs = {place: Programs(place, Isolation(settings.sandbox)) for place in places}

    def open_judge(place: str, folder: Path) -> LocalJudge:
        problem = wiring.find_problem(settings, str(folder))
        arithmetic = wiring.find_arithmetic(settings, problem, place)
        return wiring.judge(settings, problem, place, arithmetic, Effort.QUICK, programs[place])

    def on_verdict(subject: cases.Subject, verdict: cases.Verdict) -> None:
        console.print(f"{subject.kernel.parent.name}/{subject.kernel.stem}: {verdict.outcome}", style="dim")

    def at_end(place: str) -> None:
        programs[place].close()

    report = batch.judge_all(chosen, dataset.parent, open_judge, on_verdict, places, at_end)
    report.experiment_metadata = {**(report.experiment_metadata or {}), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    if save:
        batch.save(report, save)
    console.print(evaluation(report))
    if json:
        answer(summary(report))
    return 0 if batch.as_expected(report) else UNEXPECTED
