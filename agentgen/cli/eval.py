"""`agentgen eval`: judges a dataset's kernels, solves its problems, and says what is not as it should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter
from rich.console import Console

from agentgen import __version__, config
from agentgen.cli.answer import answer
from agentgen.cli.doing import Doing
from agentgen.cli.options import Devices, Json, Models, Sandbox
from agentgen.cli.screen import screen
from agentgen.cli.tally import Tally
from agentgen.config import Layer, Settings
from agentgen.errors import BadInput
from agentgen.report.evaluation import evaluation, summary
from agentgen.scoring import batch, cases
from agentgen.scoring.benches import Bench
from agentgen.scoring.cases import Cases
from agentgen.scoring.journal import Journal
from agentgen.workers.devices import device_type, find_devices

KERNEL_MINUTES: Final = 30.0
"""As long as a judge may take by itself."""


Root = Annotated[Path | None, Parameter(help="Folder that the dataset's paths are relative to. [default: its own]")]
Only = Annotated[tuple[str, ...], Parameter(negative="", help="Cases whose names contain this; repeatable.")]
Repeat = Annotated[int, Parameter(help="How often each case is done.")]
LimitMinutes = Annotated[
    float | None,
    Parameter(help="How long a case may take. [default: 30 for a kernel; for a search what its case says]"),
]
Fresh = Annotated[
    bool, Parameter(negative="", show_default=False, help="Begin anew, whatever is kept of one that was killed.")
]
Save = Annotated[Path | None, Parameter(help="File to write the whole report to, as JSON.")]


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
    json: Json = False,
) -> int:
    """Judge the kernels of a dataset, and solve its problems. What was killed goes on where it was.

    Args:
        dataset: YAML of pydantic-evals: problem and kernel of each case, and the verdict that is due.
    """
    if repeat < 1 or not (limit_minutes is None or limit_minutes > 0):
        raise BadInput("--repeat is at least 1, and --limit-minutes more than 0")
    console = screen()
    settings = config.here(Layer(device=device, sandbox=sandbox))
    places = find_devices(settings.device)
    kind = device_type(places[0])
    folder = dataset.parent if root is None else root.expanduser()
    every = cases.load(dataset, folder)
    chosen = cases.on_device(cases.named(every, only) if only else every, kind)
    if not chosen.cases:
        raise BadInput(f"{dataset} has no such case that a {kind} could decide")
    console.print(f"{every.name}: {len(chosen.cases)} of {len(every.cases)} cases on {', '.join(places)}")

    journal = Journal(_journal_file(settings, dataset, folder, kind, model, only, repeat, limit_minutes), folder)
    doing = Doing(settings, folder, places, journal, console, models=model, limit_minutes=limit_minutes)
    for case in chosen.cases:
        doing.require(places[0], case.inputs)
    journal.claim()
    if fresh:
        journal.clear()
    _recall(console, journal, doing, chosen, places[0], repeat)
    benches = [Bench(place, folder, doing.open_judge, doing.solve, doing.at_end, doing.stop) for place in places]
    tally = Tally(console, len(chosen.cases) * repeat)
    report = _report(chosen, benches, journal, tally, repeat, limit_minutes or KERNEL_MINUTES)
    if save:
        batch.save(report, save)
    console.print(evaluation(report))
    if tally.may_go_on:
        console.print("the same command tries what failed again, and nothing else; --fresh does everything")
    else:
        journal.end()
    if json:
        answer(summary(report))
    return tally.exit_code(report)


def _report(
    chosen: Cases, benches: Sequence[Bench], journal: Journal, tally: Tally, repeat: int, limit_minutes: float
) -> batch.Report:
    try:
        report = batch.evaluate(
            chosen, benches, journal, tally.found, tally.failed, repeat=repeat, limit_s=60 * limit_minutes
        )
    except KeyboardInterrupt as error:
        error.add_note("what is finished is kept; the same command goes on where it was")
        raise
    report.experiment_metadata = {**(report.experiment_metadata or {}), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    return report


def _recall(console: Console, journal: Journal, doing: Doing, chosen: Cases, place: str, repeat: int) -> None:
    """Says what is known from a process that was ended, as far as it was found on this machine."""
    goes = [journal.visitor(case.name or "", nth, case.inputs) for case in chosen.cases for nth in range(1, repeat + 1)]
    known = [go for go in goes if journal.known(go)]
    begun = [go for go in goes if journal.begun(go) and go not in known]
    if not known and not begun:
        return
    console.print(f"kept in {journal.path}: {len(known)} of {len(goes)} finished, {len(begun)} searches begun")
    if len(known) == len(goes):
        return  # nothing new will stand beside it
    # With a problem that a judge was opened for before, for others may be no problems at all.
    judged = [go for go in known if (found := journal.known(go)) and found.machine]
    opened = (judged or begun or known)[0].inputs.problem
    if others := doing.same_machine(place, opened):
        console.print(f"{others} of them were found on another machine, or with other versions, and are done again")


def _journal_file(settings: Settings, dataset: Path, *options: object) -> Path:
    """Returns where an evaluation with these settings is kept until it is finished."""
    said = {
        field.name: str(getattr(settings, field.name))
        for field in fields(settings)
        if field.name not in ("api_key", "device", "results")
    }
    about = repr((__version__, str(dataset.resolve()), said, [str(option) for option in options]))
    return settings.results / "runs" / f"eval-{dataset.stem}-{sha256(about.encode()).hexdigest()[:8]}.jsonl"
