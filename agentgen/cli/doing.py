"""How the cases of an evaluation are done: a judge for a kernel, a search for a problem."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from agentgen import wiring
from agentgen.cli.kernel import read_source
from agentgen.cli.solve import priced_models
from agentgen.config import Settings
from agentgen.errors import BadInput, MachineFailure, ReferenceInvalid, ReplyPending
from agentgen.models.roster import split_part
from agentgen.records import events
from agentgen.records.candidate import SHORT_ID, Language
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Effort, Isolation, Run, RunStatus
from agentgen.report.live.lines import waiting
from agentgen.report.solution import Solution, read
from agentgen.report.table import best
from agentgen.scoring.cases import Inputs, Solve, Subject, language_of
from agentgen.scoring.journal import Begun, Journal, Visitor
from agentgen.scoring.verdicts import Searched, Verdict
from agentgen.search.loop import run_search
from agentgen.store.ledger import Ledger
from agentgen.threads import Hand
from agentgen.workers.devices import device_type, run_devices
from agentgen.workers.local import LocalJudge
from agentgen.workers.pool import Pool
from agentgen.workers.programs import Programs


class Doing:
    """Opens judges and solves problems, under the settings of one evaluation."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        places: Sequence[str],
        journal: Journal,
        console: Console,
        *,
        models: tuple[str, ...] = (),
        limit_minutes: float | None = None,
    ) -> None:
        """Takes the settings, and the folder that the cases' paths are relative to.

        Args:
            settings: of all cases, where they say nothing else.
            folder: that the cases' paths are relative to.
            places: the devices.
            journal: where the runs of searches are kept.
            console: where to tell of searches.
            models: who is asked, whatever a case says.
            limit_minutes: how long a search may go on asking; None: as its case says.
        """
        # A kernel is judged, and a problem solved, in the arithmetic of its case.
        self._settings = replace(settings, arithmetic=None)
        self._folder = folder
        self._journal = journal
        self._console = console
        self._models = models
        self._limit_minutes = limit_minutes
        self._programs = {place: Programs(place, Isolation(settings.sandbox)) for place in places}
        self._pools: dict[str, Pool] = {}
        """Of each device, who judges for the search there."""
        self._machine: Machine | None = None
        """Where a journal was that had something."""

    def require(self, place: str, inputs: Inputs, repeat: int = 1) -> None:
        """Looks whether a case can begin at all, as often as it is to be done.

        Raises:
            BadInput: a problem that is none, a model without a server, a run database's address that is none, a kernel
                that is no text or that the device does not run, or goes that would all get the same answers.
            StoreUnavailable: the run database cannot be opened.
        """
        problem = str((self._folder / inputs.problem).resolve())
        if not isinstance(inputs, Solve):
            self._arithmetic_of(wiring.find_problem(self._settings, problem), place, inputs.arithmetic)
            read_source(self._folder / inputs.kernel)
            _require_runs(inputs, place)
            return
        settings = self._of_case(inputs, place)
        wiring.new_run(settings, problem)
        with wiring.ledger(settings):
            pass
        shared = [model for model in settings.model if split_part(model)[1].startswith(f"{wiring.MAILBOX}:")]
        if shared and repeat > 1:
            raise BadInput(
                f"--repeat {repeat} with the one mailbox {shared[0]} asks for the same answers each time: say mailbox, "
                "and each search has its own"
            )

    def same_machine(self, place: str, problems: Iterable[Path]) -> int:
        """Has the journal forget what was found on another machine than this one, and returns how many cases that were.

        Args:
            place: a device.
            problems: relative to the dataset; a judge is opened there for the first whose reference is valid.

        Raises:
            AgentgenError: none can be opened. Where nothing was found yet, a search of each will say why.
        """
        for problem in problems:
            with suppress(ReferenceInvalid):
                with self.open_judge(place, self._folder / problem) as judge:
                    self._machine = judge.target().machine
                return self._journal.forget(self._machine)
        if self._journal.machines:
            raise ReferenceInvalid("no problem that was judged before has a valid reference now: --fresh begins anew")
        return 0

    def open_judge(self, place: str, folder: Path, arithmetic: Arithmetic | None = None) -> LocalJudge:
        """Returns the judge of a problem on a device, in an arithmetic or (None) the problem's own."""
        problem = wiring.find_problem(self._settings, str(folder))
        found = self._arithmetic_of(problem, place, arithmetic)
        return wiring.judge(self._settings, problem, place, found, Effort.QUICK, self._programs[place])

    def _arithmetic_of(self, problem: Problem, place: str, given: Arithmetic | None) -> Arithmetic:
        return wiring.find_arithmetic(replace(self._settings, arithmetic=given), problem, place)

    def solve(self, place: str, visitor: Visitor) -> tuple[Verdict, Machine | None]:
        """Searches a kernel for a problem; a run that was begun for this visitor goes on.

        Raises:
            ReplyPending: the run waits for answers in its mailbox.
            AgentgenError: as of `agentgen solve`.
        """
        assert isinstance(visitor.inputs, Solve)
        settings = self._of_case(visitor.inputs, place)
        with wiring.ledger(settings) as ledger:
            run, before_s = self._run(settings, ledger, visitor)
            watch = _Watch(self._console, self._journal, visitor, run.id, before_s, time.monotonic())
            if run.status is not RunStatus.DONE:
                self._search(settings, ledger, run, place, watch)
            return verdict_of(read(ledger, run.id), watch.elapsed_s())

    def stop(self, place: str) -> None:
        """Ends the search on a device; it can be resumed. For another thread."""
        if pool := self._pools.get(place):
            # Not here: it may wait for a judge for seconds, and other devices are to be stopped meanwhile.
            Hand(f"stops {place}").do(pool.close)

    def at_end(self, place: str) -> None:
        """Ends what was got ready for a next judge."""
        self._programs[place].close()

    def _of_case(self, case: Solve, place: str) -> Settings:
        caps = case.caps
        own = caps.minutes or self._settings.budget_minutes
        minutes = [minutes for minutes in (own, self._limit_minutes) if minutes is not None]
        given = {
            "device": place,
            "languages": tuple(language.value for language in case.languages),
            "arithmetic": case.arithmetic and case.arithmetic.value,
            "strategy": case.strategy and case.strategy.value,
            "rounds": case.rounds,
            "model": self._models or tuple(self._beside_the_dataset(model) for model in case.models),
            "budget_usd": caps.usd,
            "budget_tokens": caps.tokens,
            "budget_minutes": min(minutes, default=None),
            "max_candidates": caps.candidates,
        }
        said = {key: value for key, value in given.items() if value}
        return replace(self._settings, effort=case.effort.value, **said)

    def _beside_the_dataset(self, model: str) -> str:
        part, name = split_part(model)
        kind, colon, folder = name.partition(":")
        if colon and kind in (wiring.RECORDED, wiring.MAILBOX):
            name = f"{kind}:{self._folder / folder}"
        return f"{part.value}={name}" if part else name

    def _run(self, settings: Settings, ledger: Ledger, visitor: Visitor) -> tuple[Run, float]:
        """Returns the run of a visitor, begun now if it was not, with the seconds that were spent on it."""
        if known := self._known(ledger, visitor):
            self._console.print(f"{visitor.name}: run {known[0].id} goes on", style="dim")
            return known
        problem = str((self._folder / visitor.inputs.problem).resolve())
        run = wiring.new_run(settings, problem)
        if wiring.is_foreign(problem):
            wiring.require_admitted(run.problem, run.device, run.arithmetic)
        priced_models(settings, run)  # before there is a run
        ledger.create_run(run)
        self._journal.begin(visitor, Begun(run=run.id))
        self._console.print(f"{visitor.name}: run {run.id} on {run.device}, {', '.join(run.models)}", style="dim")
        return run, 0.0

    def _known(self, ledger: Ledger, visitor: Visitor) -> tuple[Run, float] | None:
        begun = self._journal.begun(visitor)
        try:
            run = ledger.run(begun.run) if begun else None
        except BadInput:  # another database than then
            return None
        if not begun or not run or (self._machine and run.target and run.target.machine.id != self._machine.id):
            return None
        return run, begun.seconds

    def _search(self, settings: Settings, ledger: Ledger, run: Run, place: str, watch: _Watch) -> None:
        roster, places = priced_models(settings, run), run_devices(run, place)
        with wiring.packed(settings, ledger, run), wiring.run_judge(settings, run, places) as pool:
            self._pools[place] = pool
            # Nothing of what won on other problems: what a case comes to must not depend on what was solved before it.
            result = run_search(ledger.run(run.id), ledger, roster, pool, watch, watch.elapsed_s)
        if result.answers:
            folders = ", ".join(map(str, wiring.mailboxes(settings, run)))
            raise ReplyPending(f"run {run.id} is {waiting(result.answers, 0)} in {folders}")
        if result.evaluations:
            raise MachineFailure(f"run {run.id} is {waiting(0, result.evaluations)}")


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


def _require_runs(subject: Subject, place: str) -> None:
    """Raises BadInput for a kernel in a language of which nothing can be decided on a device: whatever came of it would
    be no verdict on it."""
    language, kind = language_of(subject), device_type(place)
    if (language, kind) in ((Language.CUDA, "cpu"), (Language.CPP, "cuda")):
        other = "cuda" if kind == "cpu" else "cpu"
        raise BadInput(
            f"{subject.kernel} is in {language.value}, and {place} runs none of it: give its case "
            f"`metadata: {{devices: [{other}]}}`"
        )


def _without_folder(model: str) -> str:
    """A report names no folder of the machine that it was made on."""
    part, name = split_part(model)
    kind = name.partition(":")[0]
    name = kind if kind in (wiring.RECORDED, wiring.MAILBOX) else name
    return f"{part.value}={name}" if part else name


@dataclass(frozen=True)
class _Watch:
    """Tells of each trial of a search in a line, and keeps in the journal how long it has taken so far."""

    console: Console
    journal: Journal
    visitor: Visitor
    run: str
    before_s: float
    """What processes spent on it that were ended."""
    start_s: float

    def elapsed_s(self) -> float:
        """Returns the seconds of the search, over all processes that worked on it."""
        return self.before_s + time.monotonic() - self.start_s

    def __call__(self, event: events.Event) -> None:
        """Takes what a search tells."""
        if isinstance(event, events.TrialDone):
            score = event.score
            self.console.print(f"  {self.visitor.name} {score.candidate[:SHORT_ID]}: {score.outcome}", style="dim")
            self.journal.begin(self.visitor, Begun(run=self.run, seconds=self.elapsed_s()))
