"""`agentgen eval`: judges a dataset's kernels, solves its problems, and says what is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter
from rich.console import Console

from agentgen import config
from agentgen.cli import baseline as baselines
from agentgen.cli.answer import answer
from agentgen.cli.checkout import commit
from agentgen.cli.doing import Doing
from agentgen.cli.options import Devices, Json, Models, Sandbox
from agentgen.cli.screen import screen
from agentgen.config import Layer, Settings
from agentgen.errors import BadInput
from agentgen.report.changes import Compared
from agentgen.report.evaluation import evaluation, summary
from agentgen.scoring import batch, cases, gate
from agentgen.scoring.batch import Report
from agentgen.scoring.benches import Bench
from agentgen.scoring.cases import Cases
from agentgen.scoring.journal import Journal
from agentgen.scoring.verdicts import Verdict
from agentgen.workers.devices import device_type, find_devices

UNEXPECTED = 1
AGAIN: Final = 5
"""Further goes at a case that looks slower."""


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
    baseline: Annotated[
        Path | None, Parameter(help="A saved report: what changed beyond chance; exit 1 on a regression alone.")
    ] = None,
    update_baseline: Annotated[
        bool, Parameter(negative="", show_default=False, help="Then write the new report over it, and exit 0.")
    ] = False,
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
    kept = baselines.opened(baseline, update=update_baseline, save=save, only=only, dataset=every.name or "")
    chosen = cases.on_device(cases.named(every, only) if only else every, kind)
    if not chosen.cases:
        raise BadInput(f"{dataset} has no such case that a {kind} could decide")
    console.print(f"{every.name}: {len(chosen.cases)} of {len(every.cases)} cases on {', '.join(places)}")
    evaluating = _Evaluating(settings, dataset, places, console, 60 * limit_minutes)
    report = evaluating(chosen, repeat)
    if save:
        batch.save(report, save)
    compared = _compared(report, kept.report, chosen, evaluating) if kept and kept.report else None
    if not report.failures:
        evaluating.end()
    console.print(evaluation(report))
    if compared:
        console.print(compared.shown(), soft_wrap=True)  # a change is one line, in a log as well
    if kept and (words := kept.written(report)):
        console.print(words)
    if json:
        answer(summary(report) | (compared.summary() if compared else {}))
    right = not compared.regression or update_baseline if compared else batch.as_expected(report)
    return 0 if right else UNEXPECTED


@dataclass
class _Evaluating:
    """Does cases, under the settings of the command."""

    settings: Settings
    dataset: Path
    places: tuple[str, ...]
    console: Console
    limit_s: float
    journals: list[Journal] = field(default_factory=list[Journal])

    def __call__(self, some: Cases, goes: int, part: str = "") -> Report:
        """Returns the report on some cases; `part` tells apart goes that are not the first."""
        folder = self.dataset.parent
        journal = Journal(self._journal_file(goes, part), folder)
        self.journals.append(journal)
        doing = Doing(self.settings, folder, self.places, journal, self.console)
        benches = [Bench(place, folder, doing.open_judge, doing.solve, doing.at_end) for place in self.places]
        report = batch.evaluate(some, benches, journal, self._said, repeat=goes, limit_s=self.limit_s)
        report.experiment_metadata = {**(report.experiment_metadata or {}), **_about(report)}
        return report

    def end(self) -> None:
        """Removes the journals: the report is written."""
        for journal in self.journals:
            journal.end()

    def _said(self, name: str, verdict: Verdict) -> None:
        self.console.print(f"{name}: {verdict.outcome or 'unsolved'}", style="dim")

    def _journal_file(self, goes: int, part: str) -> Path:
        """Returns where an evaluation with these settings is kept until it is finished."""
        about = [str(self.dataset.resolve()), device_type(self.places[0]), str(goes), self.settings.sandbox]
        about += [*self.settings.model, *([part] if part else [])]
        digest = sha256("\0".join(about).encode()).hexdigest()[:8]
        return self.settings.results / "runs" / f"eval-{self.dataset.stem}-{digest}.jsonl"


def _compared(new: Report, old: Report, chosen: Cases, evaluating: _Evaluating) -> Compared:
    """Compares with the baseline. Cases that look slower are done again, now that all others are over, before that is
    said of them."""
    again = None
    if names := gate.suspects(new, old):
        evaluating.console.print(f"{AGAIN} more goes at what looks slower: {', '.join(names)}")
        again = evaluating(cases.called(chosen, names), AGAIN, "again")
    return Compared(old, gate.compare(new, old, again), gate.least_told(new, old, again))


def _about(report: Report) -> dict[str, Any]:
    """Returns when this was, by which agentgen and which models."""
    models = sorted({model for case in report.cases if case.output.run for model in case.output.run.models})
    known = commit()
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        **({"commit": known} if known else {}),
        **({"models": models} if models else {}),
    }
