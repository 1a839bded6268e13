"""How the cases of an evaluation are done: a judge for a kernel, a search for a problem."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from agentgen import wiring
from agentgen.cli.solve import priced_models
from agentgen.config import Settings
from agentgen.errors import MachineFailure
from agentgen.records import events
from agentgen.records.machine import Machine
from agentgen.records.run import Effort, Isolation, Run, RunStatus
from agentgen.report.solution import Solution, read
from agentgen.report.table import SHORT_ID, best
from agentgen.scoring.cases import Solve
from agentgen.scoring.journal import Journal, Visitor
from agentgen.scoring.verdicts import Searched, Verdict
from agentgen.search.elsewhere import won_elsewhere
from agentgen.search.loop import run_search
from agentgen.store.ledger import Ledger
from agentgen.workers.devices import run_devices
from agentgen.workers.local import LocalJudge
from agentgen.workers.programs import Programs


class Doing:
    """Opens judges and solves problems, under the settings of one evaluation."""

    def __init__(
        self, settings: Settings, folder: Path, places: tuple[str, ...], journal: Journal, console: Console
    ) -> None:
        """Takes the settings, and the folder that the cases' paths are relative to."""
        self._settings = settings
        self._folder = folder
        self._journal = journal
        self._console = console
        self._programs = {place: Programs(place, Isolation(settings.sandbox)) for place in places}

    def open_judge(self, place: str, folder: Path) -> LocalJudge:
        """Returns the judge of a problem on a device."""
        problem = wiring.find_problem(self._settings, str(folder))
        arithmetic = wiring.find_arithmetic(self._settings, problem, place)
        return wiring.judge(self._settings, problem, place, arithmetic, Effort.QUICK, self._programs[place])

    def solve(self, place: str, visitor: Visitor) -> tuple[Verdict, Machine | None]:
        """Searches a kernel for a problem; a run that was begun for this visitor goes on.

        Raises:
            MachineFailure: also where a run waits for answers in its mailbox.
            AgentgenError: as of `agentgen solve`.
        """
        assert isinstance(visitor.inputs, Solve)
        settings = self._of_case(visitor.inputs, place)
        start_s = time.monotonic()
        with wiring.ledger(settings) as ledger:
            run = self._run(settings, ledger, visitor)
            if run.status is not RunStatus.DONE:
                self._search(settings, ledger, run, place, lambda: time.monotonic() - start_s)
            return verdict_of(read(ledger, run.id), time.monotonic() - start_s)

    def at_end(self, place: str) -> None:
        """Ends what was got ready for a next judge."""
        self._programs[place].close()

    def _of_case(self, case: Solve, place: str) -> Settings:
        caps = case.caps
        given = {
            "device": place,
            "languages": tuple(language.value for language in case.languages),
            "arithmetic": case.arithmetic and case.arithmetic.value,
            "strategy": case.strategy and case.strategy.value,
            "rounds": case.rounds,
            "model": self._settings.model or case.models,
            "budget_usd": caps.usd,
            "budget_tokens": caps.tokens,
            "budget_minutes": caps.minutes,
            "max_candidates": caps.candidates,
        }
        said = {key: value for key, value in given.items() if value}
        return replace(self._settings, effort=case.effort.value, **said)

    def _run(self, settings: Settings, ledger: Ledger, visitor: Visitor) -> Run:
        """Returns the run of a visitor, begun now if it was not."""
        if known := self._journal.run_of(visitor):
            return ledger.run(known)
        problem = str((self._folder / visitor.inputs.problem).resolve())
        run = wiring.new_run(settings, problem)
        if wiring.is_foreign(problem):
            wiring.require_admitted(run.problem, run.device, run.arithmetic)
        ledger.create_run(run)
        self._journal.begin(visitor, run.id)
        return run

    def _search(self, settings: Settings, ledger: Ledger, run: Run, place: str, elapsed_s: Callable[[], float]) -> None:
        roster, places = priced_models(settings, run), run_devices(run, place)
        watch = _Progress(self._console, run.problem.name)
        judge = wiring.run_judge(settings, run, places)
        with wiring.packed(settings, ledger, run), judge:
            result = run_search(ledger.run(run.id), ledger, roster, judge, watch, elapsed_s, won_elsewhere(ledger, run))
        if result.status is RunStatus.WAITING:
            folders = ", ".join(map(str, wiring.mailboxes(settings, run)))
            raise MachineFailure(f"it waits for {result.answers} answers in {folders}: answer, and evaluate again")


def verdict_of(solution: Solution, seconds: float) -> tuple[Verdict, Machine | None]:
    """Returns what a run says of its problem, and where its kernels were evaluated."""
    trials = solution.evaluated
    searched = Searched(
        id=solution.run.id,
        models=tuple(_without_folder(model) for model in solution.run.models),
        candidates=len(trials),
        accepted=sum(trial.accepted for trial in trials),
        seconds=seconds,
        tokens=solution.spent.tokens,
        cost_usd=solution.spent.cost_usd,
    )
    return Verdict.of_run(trials, best(trials), searched), trials[-1].machine if trials else None


def _without_folder(model: str) -> str:
    """Returns how a model is called where this machine's folders are nobody's business."""
    kind = model.partition(":")[0]
    return kind if kind.rpartition("=")[2] in {"recorded", "mailbox"} else model


@dataclass(frozen=True)
class _Progress:
    """A line per trial."""

    console: Console
    problem: str

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.TrialDone):
            score = event.score
            self.console.print(f"  {self.problem} {score.candidate[:SHORT_ID]}: {score.outcome}", style="dim")
