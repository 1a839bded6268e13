"""`agentgen solve`: a search from its settings to the kernel it found."""

from __future__ import annotations

from rich.console import Console

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import ArithmeticOption, Device, EffortName, Json, Languages, Models
from agentgen.cli.screen import screen
from agentgen.config import Layer, Settings
from agentgen.errors import AgentgenError
from agentgen.models.chat import ChatModel
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
    )
    settings = config.here(flags)
    run = wiring.new_run(settings, problem)
    models = wiring.open_models(settings, run)
    with wiring.ledger(settings) as ledger:
        ledger.create_run(run)
        return carry_out(run, settings, ledger, models, as_json=json)


def carry_out(run: Run, settings: Settings, ledger: Ledger, models: tuple[ChatModel, ...], *, as_json: bool) -> int:
    """Searches as far as it goes, reports, and returns the exit code.

    Raises:
        KeyboardInterrupt: the run is stopped; a note tells how to resume it.
        AgentgenError: so it is after a failure of machine, store or model.
    """
    console = screen()
    _announce(console, run, models)
    try:
        judge = wiring.judge(run.problem, run.device, run.arithmetic, run.effort)
        with judge, watching(console, f"{run.problem.name} on {run.device}") as watch:
            run_search(run, ledger, models, judge, watch)
    except (KeyboardInterrupt, AgentgenError) as error:
        error.add_note(f"the run is stored; go on with: agentgen resume {run.id}")
        raise
    found = read(ledger, run.id)
    # Before the end there is no best one, and a file of then would lie beside the one of later.
    done = found.run.status is RunStatus.DONE
    kernel = write_best(found, wiring.run_folder(settings, run)) if done else None
    console.print(end_table(found.candidates, found.ideas, found.trials, console.width))
    console.print(verdict(found.evaluated))
    if kernel:
        console.print(f"kernel: {kernel}")
    if as_json:
        answer(solution_json(found, kernel))
    if found.run.status is RunStatus.WAITING:
        for folder in wiring.mailboxes(settings, run):
            console.print(f"requests and what to do with them: {folder}")
        console.print(f"go on with: agentgen resume {run.id}")
        return WAITING
    return 0


def _announce(console: Console, run: Run, models: tuple[ChatModel, ...]) -> None:
    console.print(f"run {run.id}: {run.problem.name} ({run.problem.title}) in {run.arithmetic.value} on {run.device}")
    console.print(f"languages: {', '.join(run.languages)}; model: {', '.join(model.name for model in models)}")
    if wiring.is_replayed(run):
        console.print("what the model says is recorded; what is measured is live")
    if run.target is None:
        console.print("the judge starts: it looks at the device and times the baselines …", style="dim")
