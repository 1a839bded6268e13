"""`agentgen eval`: judges kernels, solves problems, and says what is not as it should be, or no more as it was."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from os.path import expanduser
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen import config
from agentgen.cli import baseline as baselines
from agentgen.cli.answer import answer
from agentgen.cli.evaluating import Evaluating
from agentgen.cli.options import Devices, Display, Json, Models, Sandbox, Whole
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.errors import BadInput
from agentgen.records.problem import DeviceType
from agentgen.report.evaluation import evaluation, summary
from agentgen.report.failures import tried_again, tried_again_line
from agentgen.scoring import cases
from agentgen.scoring.cases import Cases
from agentgen.workers.devices import device_type, find_devices

Root = Annotated[Path | None, Parameter(help="Folder that the dataset's paths are relative to. [default: its own]")]
Only = Annotated[tuple[str, ...], Parameter(negative="", help="Cases whose names contain this; repeatable.")]
Repeat = Annotated[Whole, Parameter(help="How often each case is done.")]
LimitMinutes = Annotated[
    float | None,
    Parameter(help="How long a case may take. [default: 30 for a kernel; for a search what its case says]"),
]
Fresh = Annotated[
    bool, Parameter(negative="", show_default=False, help="Begin anew, whatever is kept of one that was killed.")
]
Save = Annotated[Path | None, Parameter(help="File to write the whole report to, as JSON.")]
BaselineFile = Annotated[
    Path | None,
    Parameter(
        name="--baseline", help="A saved report: what changed since, beyond chance; exit 1 on a regression alone."
    ),
]
UpdateBaseline = Annotated[
    bool,
    Parameter(
        negative="",
        show_default=False,
        help="Then write the new report over it, and exit 0; 2 where it has holes that the next attempt may fill.",
    ),
]


def evaluate(
    dataset: Path,
    /,
    *,
    device: Devices = None,
    model: Models = (),
    sandbox: Sandbox = None,
    root: Root = None,
    only: Only = (),
    repeat: Repeat = 1,
    limit_minutes: LimitMinutes = None,
    fresh: Fresh = False,
    save: Save = None,
    baseline: BaselineFile = None,
    update_baseline: UpdateBaseline = False,
    display: Display = None,
    json: Json = False,
) -> int:
    """Judge the kernels of a dataset, and solve its problems. What was killed goes on where it was.

    Args:
        dataset: YAML of pydantic-evals: problem and kernel of each case, and the verdict that is due.
    """
    if repeat < 1 or not (limit_minutes is None or 0 < limit_minutes < inf):
        raise BadInput("--repeat is at least 1, and --limit-minutes more than 0, and finite")
    console = screen(display)
    settings = config.here(Layer(device=device, sandbox=sandbox))
    places = find_devices(settings.device)
    kind = device_type(places[0])
    folder = dataset.parent if root is None else Path(expanduser(root))
    every = cases.load(dataset, folder)
    kept = baselines.opened(baseline, update=update_baseline, save=save, only=only, dataset=every.name or "")
    chosen = _chosen(every, dataset, only, kind, model or settings.model)
    console.meanwhile.print(f"{every.name}: {len(chosen.cases)} of {len(every.cases)} cases on {', '.join(places)}")
    evaluating = Evaluating(settings, dataset, folder, places, console, model, only, limit_minutes, fresh)
    report, tally = evaluating(chosen, repeat)
    console.print(evaluation(report))
    console.print(tried_again_line(again := tried_again(report)), end="")
    unsaved = baselines.saved(report, save, console)
    code, told = tally.exit_code(report), {}
    if kept:
        code, told = kept.settled(report, lambda old: evaluating.compared(report, old, chosen), console)
    code, told = unsaved.get("exit_code", code), told | unsaved
    if json:
        answer(summary(report) | again | told)
    if "error" not in told or evaluating.may_go_on:  # what could not be written, here or on stdout, is not lost
        evaluating.end()
    return code


def _chosen(every: Cases, dataset: Path, only: tuple[str, ...], kind: DeviceType, models: Sequence[str]) -> Cases:
    chosen = cases.on_device(cases.named(every, only) if only else every, kind)
    chosen = chosen if models else cases.without_unsolved(chosen)
    if not chosen.cases:
        hint = "" if models else "; problems that no model has solved yet need --model"
        raise BadInput(f"{dataset} has no such case that a {kind} could decide{hint}")
    return chosen
