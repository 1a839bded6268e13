"""`agentgen solve`: a search from its settings to the kernel it found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import (
    ArithmeticOption,
    BudgetMinutes,
    BudgetTokens,
    BudgetUsd,
    Devices,
    Display,
    EffortName,
    Force,
    Json,
    Languages,
    MaxCandidates,
    Models,
    Sandbox,
    Strategies,
    Wait,
    WholeOrNone,
)
from agentgen.cli.screen import Screen, screen
from agentgen.config import Layer, Settings
from agentgen.errors import AgentgenError
from agentgen.models.mailbox import replies, wait_for_another
from agentgen.models.roster import Roster
from agentgen.records import events
from agentgen.records.run import Capped, Caps, Run, RunStatus
from agentgen.report.caps import capped_line, spent_line
from agentgen.report.ideas import ideas_table
from agentgen.report.live.display import Watch, watching
from agentgen.report.solution import read, solution_json, write_best
from agentgen.report.table import end_table, verdict
from agentgen.search.caps import require_prices
from agentgen.search.elsewhere import won_elsewhere
from agentgen.search.history import became
from agentgen.search.loop import SearchResult, run_search
from agentgen.search.tree import Tree
from agentgen.store.ledger import Ledger
from agentgen.workers.devices import run_devices

WAITING = 75


def solve(
    problem: str,
    /,
    *,
    language: Languages = (),
    model: Models = (),
    device: Devices = None,
    arithmetic: ArithmeticOption = None,
    rounds: WholeOrNone = None,
    strategy: Strategies = None,
    effort: EffortName | None = None,
    sandbox: Sandbox = None,
    budget_usd: BudgetUsd = None,
    budget_tokens: BudgetTokens = None,
    budget_minutes: BudgetMinutes = None,
    max_candidates: MaxCandidates = None,
    wait: Wait = False,
    force: Force = False,
    display: Display = None,
    json: Json = False,
) -> int:
    """Search for a fast kernel.

    Args:
        problem: Name of a problem, folder of one, or a KernelBench-style file (.py).
        rounds: Rounds of ideas. [default: 2; with --effort full 5]
        effort: How wide and deep to search, and how many baselines to race. [default: quick]
    """
    start_s, console = time.monotonic(), screen(display)
    flags = Layer(
        model=model or None,
        device=device,
        languages=language or None,
        arithmetic=arithmetic,
        rounds=rounds,
        strategy=strategy,
        effort=effort,
        sandbox=sandbox,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        budget_minutes=budget_minutes,
        max_candidates=max_candidates,
    )
    settings = config.here(flags)
    run = wiring.new_run(settings, problem)
    roster = priced_models(settings, run)
    with wiring.ledger(settings) as ledger:
        _require_admitted(problem, run, force=force)
        ledger.create_run(run)
        return carry_out(run, settings, ledger, roster, console, start_s=start_s, wait=wait, as_json=json)


def _require_admitted(problem: str, run: Run, *, force: bool) -> None:
    """Raises BadInput where a problem from outside cannot be judged, unless it is to be taken anyway."""
    if wiring.is_foreign(problem) and not force:
        wiring.require_admitted(run.problem, run.device, run.arithmetic, "; --force takes it anyway")


def priced_models(settings: Settings, run: Run) -> Roster:
    """Returns the models of a run, ready to be asked.

    Raises:
        BadInput: among other things, a cap on money cannot be kept with them.
    """
    roster = wiring.open_models(settings, run)
    require_prices(run.caps, roster.models)
    return roster


def carry_out(
    run: Run,
    settings: Settings,
    ledger: Ledger,
    roster: Roster,
    console: Screen,
    *,
    start_s: float,
    device: str | None = None,
    wait: bool,
    as_json: bool,
) -> int:
    """Searches as far as it goes, reports, and returns the exit code.

    Args:
        run: in the ledger.
        settings: under which its files are found.
        ledger: where it is kept.
        roster: models of the run.
        console: where to show it.
        start_s: when this invocation began, by the monotonic clock.
        device: others than the run's own.
        wait: stay for answers in the mailbox.
        as_json: print one JSON object.

    Raises:
        KeyboardInterrupt: the run is stopped; a note tells how to resume it.
        AgentgenError: so it is after a failure of machine, store or model.
    """
    places = run_devices(run, device)
    where = ", ".join(places)
    _announce(console.meanwhile, run, where, roster)
    won = won_elsewhere(ledger, run)
    try:
        judge = wiring.run_judge(settings, run, places)
        display = watching(console, console.display, f"{run.problem.name} on {where}", run.caps, start_s)
        with wiring.packed(settings, ledger, run), judge, display as watch:

            def search() -> SearchResult:
                now = ledger.run(run.id)
                return run_search(now, ledger, roster, judge, watch, lambda: time.monotonic() - start_s, won)

            minutes = run.caps.minutes
            until_s = None if minutes is None else start_s + 60 * minutes
            result = _answered(search, wiring.mailboxes(settings, run), watch, until_s) if wait else search()
    except (KeyboardInterrupt, AgentgenError) as error:
        error.add_note(f"the run is stored; go on with: agentgen resume {run.id}")
        raise
    return show(console, settings, ledger, run.id, start_s=start_s, capped=result.capped, as_json=as_json)


def _answered(
    search: Callable[[], SearchResult], mailboxes: Sequence[Path], watch: Watch, until_s: float | None
) -> SearchResult:
    """Searches, and again whenever somebody has answered, until nothing is waited for."""
    while True:
        known = replies(mailboxes)
        result = search()
        if not result.answers:
            return result
        watch(events.AnswersAwaited(tuple(map(str, mailboxes))))
        wait_for_another(mailboxes, known, until_s)


def show(
    console: Console,
    settings: Settings,
    ledger: Ledger,
    run_id: str,
    *,
    start_s: float,
    capped: Capped | None = None,
    as_json: bool,
) -> int:
    """Shows a run as it is stored now, writes the best kernel of one that is done or that a cap stopped, for that is
    what was asked for, and returns the exit code."""
    found = read(ledger, run_id)
    minutes = (time.monotonic() - start_s) / 60
    # Before the end there is no best one, and a file of then would lie beside the one of later.
    stopped = capped if found.run.status is RunStatus.STOPPED else None
    done = found.run.status is RunStatus.DONE or stopped is not None
    kernel = write_best(found, wiring.run_folder(settings, found.run)) if done else None
    ideas = became(Tree.read(ledger, found.run))
    if found.ideas:
        console.print(ideas_table(found.ideas, ideas))
    console.print(end_table(found.candidates, found.ideas, found.trials, console.width))
    console.print(verdict(found.evaluated))
    if capped:
        console.print(capped_line(capped))
    if found.run.caps != Caps():
        console.print(spent_line(found.spent, len(found.candidates), minutes))
    if found.run.target and found.run.target.workload != found.run.problem.main.name:
        console.print(f"timed at workload {found.run.target.workload!r}: the device has too little memory for main")
    if kernel:
        console.print(f"kernel: {kernel}")
    if as_json:
        answer(solution_json(found, ideas, kernel, minutes, capped))
    if stopped:
        console.print(f"go on with a higher cap: agentgen resume {run_id} {stopped.cap.value} …")
    if done:
        return 0
    for folder in wiring.mailboxes(settings, found.run):
        console.print(f"requests and what to do with them: {folder}")
    console.print(f"go on with: agentgen resume {run_id}")
    return WAITING


def _announce(console: Console, run: Run, where: str, roster: Roster) -> None:
    console.print(f"run {run.id}: {run.problem.name} ({run.problem.title}) in {run.arithmetic.value} on {where}")
    console.print(f"languages: {', '.join(run.languages)}; model: {', '.join(_named(roster))}")
    if wiring.is_replayed(run):
        console.print("what the model says is recorded; what is measured is live")


def _named(roster: Roster) -> list[str]:
    return [f"{model.name} for {part.value}" if part else model.name for part, model in roster.members]
