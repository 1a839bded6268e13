"""One evaluation, under the settings of the command line, with its journals: the cases, and what is done again."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from agentgen import __version__
from agentgen.cli.checkout import code, commit
from agentgen.cli.doing import Doing
from agentgen.cli.screen import Screen
from agentgen.cli.tally import Tally
from agentgen.config import Settings
from agentgen.report.changes import Compared
from agentgen.report.live.clock import clock
from agentgen.scoring import batch, cases, gate
from agentgen.scoring.batch import Report
from agentgen.scoring.benches import Bench
from agentgen.scoring.cases import Cases
from agentgen.scoring.journal import Journal
from agentgen.workers.devices import device_type

KERNEL_MINUTES: Final = 30.0
"""As long as a judge may take by itself."""
AGAIN: Final = 5
"""Further goes at a case that looks slower."""


@dataclass
class Evaluating:
    """Does cases."""

    settings: Settings
    dataset: Path
    folder: Path
    """That the dataset's paths are relative to."""
    places: tuple[str, ...]
    console: Screen
    models: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    limit_minutes: float | None = None
    fresh: bool = False
    """Whether what is kept of one that was killed is done again."""
    _journals: list[Journal] = field(default_factory=list[Journal])
    _tallies: list[Tally] = field(default_factory=list[Tally])

    def __call__(self, chosen: Cases, repeat: int, part: str = "") -> tuple[Report, Tally]:
        """Returns the report on some cases; `part` tells apart goes that are not the first."""
        journal = Journal(self._journal_file(repeat, part), self.folder)
        doing = Doing(
            *(self.settings, self.folder, self.places, journal, self.console.meanwhile),
            models=self.models,
            limit_minutes=self.limit_minutes,
        )
        for case in chosen.cases:
            doing.require(self.places[0], case.inputs, repeat)
        journal.claim()
        self._journals.append(journal)
        if self.fresh:
            journal.clear()
        self._recall(journal, doing, chosen, repeat)
        tally = Tally(self.console.meanwhile, len(chosen.cases) * repeat)
        self._tallies.append(tally)
        return self._report(chosen, journal, doing, tally, repeat), tally

    @property
    def may_go_on(self) -> bool:
        """Whether another attempt could find what this one did not, in the first goes or in those after them."""
        return any(tally.may_go_on for tally in self._tallies)

    def end(self) -> None:
        """Removes the journals, unless another attempt could find what this one did not."""
        if self.may_go_on:
            self.console.print("the same command without --fresh tries what failed or waits, and nothing else")
            return
        for journal in self._journals:
            journal.end()

    def compared(self, new: Report, old: Report, chosen: Cases) -> Compared:
        """Compares with the baseline. Kernels that look slower are judged again, now that all others are done, before
        that is said of them."""
        again = None
        if names := gate.suspects(new, old):
            self.console.meanwhile.print(f"{AGAIN} more goes at what looks slower: {', '.join(names)}", soft_wrap=True)
            again, _ = self(cases.called(chosen, names), AGAIN, "again")
        return Compared(old, gate.compare(new, old, again), gate.least_told(new, old, again))

    def _report(self, chosen: Cases, journal: Journal, doing: Doing, tally: Tally, repeat: int) -> Report:
        benches = [
            Bench(place, self.folder, doing.open_judge, doing.solve, doing.at_end, doing.stop) for place in self.places
        ]
        limit_s = 60 * (self.limit_minutes or KERNEL_MINUTES)
        try:
            with clock(self.console.meanwhile, self.console.display) as tally.begin:
                tally.say_next()
                report = batch.evaluate(
                    chosen, benches, journal, tally.found, tally.failed, repeat=repeat, limit_s=limit_s
                )
        except KeyboardInterrupt as error:
            error.add_note("what is finished is kept; the same command goes on where it was, without --fresh")
            raise
        report.experiment_metadata = {
            **(report.experiment_metadata or {}),
            **about(report),
            gate.SANDBOX: self.settings.sandbox,
        }
        return report

    def _recall(self, journal: Journal, doing: Doing, chosen: Cases, repeat: int) -> None:
        """Says what is known from a process that was ended, as far as it was found on this machine."""
        seen = self.console.meanwhile
        goes = [
            journal.visitor(case.name or "", nth, case.inputs, repeat)
            for case in chosen.cases
            for nth in range(1, repeat + 1)
        ]
        known = [go for go in goes if journal.known(go)]
        begun = [go for go in goes if journal.begun(go) and go not in known]
        if not known and not begun:
            for other in sorted(journal.path.parent.glob(f"{journal.path.stem.rpartition('-')[0]}-*.jsonl")):
                if other != journal.path:
                    seen.print(f"kept by another agentgen than this, and done again: {other}", soft_wrap=True)
            return
        kept = f"{len(known)} of {len(goes)} finished, {len(begun)} searches begun"
        seen.print(f"kept in {journal.path}: {kept}", soft_wrap=True)
        # Also where nothing is left to do: further goes may have to stand beside these.
        judged = [go for go in known if (found := journal.known(go)) and found.machine]
        problems = dict.fromkeys(go.inputs.problem for go in (*judged, *begun))  # a judge was opened for each before
        if others := doing.same_machine(self.places[0], problems):
            seen.print(f"{others} of them were found on another machine, or with other versions, and are done again")

    def _journal_file(self, repeat: int, part: str) -> Path:
        """Returns where an evaluation with these settings, by this very agentgen, is kept until it is finished."""
        said = {
            field.name: str(getattr(self.settings, field.name))
            for field in fields(self.settings)
            if field.name not in ("api_key", "device", "results")
        }
        kind = device_type(self.places[0])
        options = (self.folder, kind, self.models, self.only, repeat, self.limit_minutes, *([part] if part else []))
        about = (str(self.dataset.resolve()), said, [str(option) for option in options])
        named = f"eval-{self.dataset.stem}-{_short(about)}"
        return self.settings.results / "runs" / f"{named}-{_short((__version__, code()))}.jsonl"


def _short(about: tuple[object, ...]) -> str:
    return sha256(repr(about).encode()).hexdigest()[:8]


def about(report: Report) -> dict[str, Any]:
    """Returns when this was, by which agentgen and which models."""
    models = sorted({model for case in report.cases if case.output.run for model in case.output.run.models})
    known = commit()
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        **({"commit": known} if known else {}),
        **({"models": models} if models else {}),
    }
