"""`agentgen eval`: judges a dataset's kernels, solves its problems, and says what is not as it should be."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen import config
from agentgen.cli.answer import answer
from agentgen.cli.doing import Doing
from agentgen.cli.options import Devices, Json, Models, Sandbox
from agentgen.cli.screen import screen
from agentgen.config import Layer, Settings
from agentgen.errors import BadInput
from agentgen.report.evaluation import evaluation, summary
from agentgen.report.failures import tried_again, tried_again_line
from agentgen.scoring import batch, cases
from agentgen.scoring.benches import Bench
from agentgen.scoring.journal import Journal
from agentgen.scoring.verdicts import Verdict
from agentgen.workers.devices import device_type, find_devices

UNEXPECTED = 1


def evaluate(
    dataset: Path,
    /,
    *,
    device: Devices = None,
    model: Models = (),
    sandbox: Sandbox = None,
    only: Annotated[tuple[str, ...], Parameter(negative="", help="Cases whose names contain this; repeatable.")] = (),
    repeat: Annotated[int, Parameter(help="How often each case is done.")] = 1,
    limit_minutes: Annotated[float, Parameter(help="How long one case may take.")] = 30.0,
    save: Annotated[Path | None, Parameter(help="File to write the whole report to, as JSON.")] = None,
    json: Json = False,
) -> int:
    """Judge the kernels of a dataset, and solve its problems. What was killed goes on where it was.

    Args:
        dataset: YAML of pydantic-evals: problem and kernel of each case, and the verdict that is due.
    """
    console = screen()
    settings = config.here(Layer(device=device, model=model or None, sandbox=sandbox))
    places = find_devices(settings.device)
    kind = device_type(places[0])
    every = cases.load(dataset)
    chosen = cases.on_device(cases.named(every, only) if only else every, kind)
    chosen = chosen if settings.model else cases.without_unsolved(chosen)
    if not chosen.cases:
        hint = "" if settings.model else "; problems that no model has solved yet need --model"
        raise BadInput(f"{dataset} has no such case that a {kind} could decide{hint}")
    console.print(f"{every.name}: {len(chosen.cases)} of {len(every.cases)} cases on {', '.join(places)}")

    journal = Journal(_journal_file(settings, dataset, kind, repeat), dataset.parent)
    doing = Doing(settings, dataset.parent, places, journal, console)
    benches = [Bench(place, dataset.parent, doing.open_judge, doing.solve, doing.at_end) for place in places]

    def on_verdict(name: str, verdict: Verdict) -> None:
        console.print(f"{name}: {verdict.outcome or 'unsolved'}", style="dim")

    report = batch.evaluate(chosen, benches, journal, on_verdict, repeat=repeat, limit_s=60 * limit_minutes)
    report.experiment_metadata = {**(report.experiment_metadata or {}), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    if save:
        batch.save(report, save)
    if not report.failures:
        journal.end()
    console.print(evaluation(report))
    again = tried_again(report)
    if line := tried_again_line(again):
        console.print(line)
    if json:
        answer({**summary(report), **again})
    return 0 if batch.as_expected(report) else UNEXPECTED


def _journal_file(settings: Settings, dataset: Path, kind: str, repeat: int) -> Path:
    """Returns where an evaluation with these settings is kept until it is finished."""
    about = "\0".join([str(dataset.resolve()), kind, str(repeat), settings.sandbox, *settings.model])
    return settings.results / "runs" / f"eval-{dataset.stem}-{sha256(about.encode()).hexdigest()[:8]}.jsonl"
