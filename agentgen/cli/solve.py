"""`agentgen solve`: a search from its settings to the kernel it found."""

from __future__ import annotations

from rich.console import Console

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import ArithmeticOption, Device, EffortName, Force, Json, Languages, Models, Sandbox, Wait
from agentgen.cli.screen import screen
from agentgen.config import Layer, Settings
from agentgen.errors import AgentgenError
from agentgen.models.chat import ChatModel
from agentgen.models.mailbox import replies, wait_for_another
from agentgen.records.run import Run, RunStatus
from agentgen.report.live import watching
from agentgen.report.solution import read, solution_json, write_best
from agentgen.report.table import end_table, verdict
from agentgen.search.loop import run_search
from agentgen.store.ledger import Ledger

WAITING = 75


def solve(
    problem: str,
    /,
    *,
    language: Languages = (),
    model: Models = (),
    device: Device = None,
    arithmetic: ArithmeticOption = None,
    rounds: int | None = None,
    effort: EffortName | None = None,
    sandbox: Sandbox = None,
    wait: Wait = False,
    force: Force = False,
    json: Json = False,
) -> int:
    """Search for a fast kernel.

    Args:
        problem: Name of a problem, folder of one, or a KernelBench-style file (.py).
        rounds: Rounds of ideas. [default: 2; with --effort full 5]
        effort: How wide and deep to search, and how many baselines to race. [default: quick]
    """
    flags = Layer(
        model=model or None,
        device=device,
        languages=language or None,
        arithmetic=arithmetic,
        rounds=rounds,
        effort=effort,
        sandbox=sandbox,
    )
    settings = config.here(flags)
    run = wiring.new_run(settings, problem)
    models = wiring.open_models(settings, run)
    with wiring.ledger(settings) as ledger:
        if wiring.is_foreign(problem) and not force:
            wiring.require_admitted(run.problem, run.device, run.arithmetic)
        ledger.create_run(run)
        return carry_out(run, settings, ledger, models, wait=wait, as_json=json)


def carry_out(
    run: Run, settings: Settings, ledger: Ledger, models: tuple[ChatModel, ...], *, wait: bool, as_json: bool
) -> int:
    """Searches as far as it goes, reports, and returns the exit code.

    Raises:
        KeyboardInterrupt: the run is stopped; a note tells how to resume it.
        AgentgenError: so it is after a failure of machine, store or model.
    """
    console = screen()
    _announce(console, run, models)
    mailboxes = wiring.mailboxes(settings, run)
    try:
        judge = wiring.judge(settings, run.problem, run.device, run.arithmetic, run.effort)
        with wiring.packed(settings, ledger, run), judge:
            while True:
                known = replies(mailboxes)
                with watching(console, f"{run.problem.name} on {run.device}") as watch:
                    result = run_search(ledger.run(run.id), ledger, models, judge, watch)
                if not (wait and result.answers):
                    break
                console.print(f"waiting for answers in {', '.join(map(str, mailboxes))} …", style="dim")
                wait_for_another(mailboxes, known)
    except (KeyboardInterrupt, AgentgenError) as error:
        error.add_note(f"the run is stored; go on with: agentgen resume {run.id}")
        raise
    return show(console, settings, ledger, run.id, as_json=as_json)


def show(console: Console, settings: Settings, ledger: Ledger, run_id: str, *, as_json: bool) -> int:
    """Shows a run as it is stored now, writes the best kernel of one that is done, and returns the exit code."""
    found = read(ledger, run_id)
    # Before the end there is no best one, and a file of then would lie beside the one of later.
    done = found.run.status is RunStatus.DONE
    kernel = write_best(found, wiring.run_folder(settings, found.run)) if done else None
    console.print(end_table(found.candidates, found.ideas, found.trials, console.width))
    console.print(verdict(found.evaluated))
    if found.run.target and found.run.target.workload != found.run.problem.main.name:
        console.print(f"timed at workload {found.run.target.workload!r}: the device has too little memory for main")
    if kernel:
        console.print(f"kernel: {kernel}")
    if as_json:
        answer(solution_json(found, kernel))
    if done:
        return 0
    for folder in wiring.mailboxes(settings, found.run):
        console.print(f"requests and what to do with them: {folder}")
    console.print(f"go on with: agentgen resume {run_id}")
    return WAITING


def _announce(console: Console, run: Run, models: tuple[ChatModel, ...]) -> None:
    console.print(f"run {run.id}: {run.problem.name} ({run.problem.title}) in {run.arithmetic.value} on {run.device}")
    console.print(f"languages: {', '.join(run.languages)}; model: {', '.join(model.name for model in models)}")
    if wiring.is_replayed(run):
        console.print("what the model says is recorded; what is measured is live")
    if run.target is None:
        console.print("the judge starts: it looks at the device and times the baselines …", style="dim")
