"""`agentgen leaderboard`: who stands where, and how a kernel gets there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter
from rich.console import Console

from agentgen import __version__, config, wiring
from agentgen.cli.answer import answer, write
from agentgen.cli.checkout import commit
from agentgen.cli.kernel import REJECTED, Judged, Subject, judged
from agentgen.cli.options import Display, Json, RunDevice, Sandbox
from agentgen.cli.reverify import certificate, keep, require_unchanged, subject_of
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.errors import BadInput, StoreUnavailable
from agentgen.models.mailbox import ANONYMOUS
from agentgen.records.candidate import Candidate
from agentgen.records.entry import Entry, Origin, Step, shelf
from agentgen.records.machine import Machine
from agentgen.records.run import Run
from agentgen.report.board import (
    board_json,
    board_tables,
    boards_markdown,
    model_table,
    models_json,
    models_markdown,
)
from agentgen.report.plain import plain
from agentgen.report.site import curves, folder, site
from agentgen.report.standings import Board, boards, by_model
from agentgen.report.trial import trial_json
from agentgen.search.chain import author, chain
from agentgen.search.tree import Tree
from agentgen.store import entries
from agentgen.store.ledger import Ledger

By = Annotated[Literal["model"] | None, Parameter(show_default=False, help="Count by who wrote the kernels instead.")]
Markdown = Annotated[
    bool, Parameter(negative="", show_default=False, help="Print the tables on stdout, in GitHub's Markdown.")
]
Html = Annotated[
    Path | None,
    Parameter(name="--html", help="Folder to write a site to, in the place of an older one: a page for each kernel."),
]
Evals = Annotated[
    Path | None,
    Parameter(help="Folder of reports (eval --save) whose fast_p the site shows. [default: that beside the kernels]"),
]

app = App(name="leaderboard")


@app.default
def show(
    *, by: By = None, markdown: Markdown = False, html: Html = None, evals: Evals = None, json: Json = False
) -> int:
    """Show the certified kernels of all problems. Ends with 1 where an entry, or a report, could not be used."""
    if markdown and json:
        raise BadInput("give --markdown or --json: stdout has room for one")
    if html and (markdown or by):
        raise BadInput("--html writes all of it: leave --markdown and --by out")
    if evals and not html:
        raise BadInput("--evals is for the site: give --html DIR too")
    if evals and not evals.is_dir():
        raise BadInput(f"{evals} is no folder of reports")
    results = config.here(Layer()).results
    kept, broken = entries.read_all(entries.root(results))
    found = boards(kept)
    if html:
        return _site(html, found, broken, evals or results / "evals", results, as_json=json)
    standings = by_model(found)
    console = screen()
    if markdown:
        write(models_markdown(standings) if by else boards_markdown(found, Path.cwd()))
    else:
        console.print(model_table(standings) if by else board_tables(found, console.width))
    _say(console, broken)
    if json:
        listed = {"models": models_json(standings)} if by else {"entries": board_json(found)}
        answer({**listed, "broken": list(broken)})
    return REJECTED if broken else 0


def _site(
    to: Path, found: Sequence[Board], unusable: Sequence[str], evals: Path, results: Path, *, as_json: bool
) -> int:
    """Writes the site, and returns the exit code."""
    console = screen()
    saved, others, unreadable = curves.read_all(evals)
    broken = (*unusable, *unreadable)
    inside = [line.replace(f"{results.parent}/", "") for line in broken]  # a site is for others than this machine
    files = site.render(found, saved, others, inside)
    folder.write(files, to)
    size = sum(map(len, files.values()))
    kernels = sum(len(board.places) for board in found)
    words = f"{kernels} kernels, fast_p of {len(saved)} reports, {size / 1000:.0f} kB"
    console.print(f"site: {to / site.INDEX} ({words})", soft_wrap=True)
    for line in others:
        console.print(plain(line), style="dim", soft_wrap=True)
    _say(console, broken)
    if as_json:
        reports = [one.name for one in saved]
        told = {"html": str(to), "bytes": size, "fast_p": reports, "without_fast_p": list(others)}
        answer({"entries": board_json(found), "broken": list(broken), **told})
    return REJECTED if broken else 0


def _say(console: Console, broken: Sequence[str]) -> None:
    for line in broken:
        console.print(f"left out: {plain(line)}", style="red", soft_wrap=True)


@app.command
def add(
    run: str,
    candidate: str | None = None,
    /,
    *,
    model: str | None = None,
    device: RunDevice = None,
    sandbox: Sandbox = None,
    display: Display = None,
    json: Json = False,
) -> int:
    """Certify a kernel of a run, and enter it where it passes. Ends with 1 where it does not.

    Args:
        run: Id of a run, `latest`, or a run's folder.
        candidate: Beginning of a kernel's id. [default: the best one of the run]
        model: Who answered in the mailbox, where the replies do not say.
    """
    layer = Layer(device=device, sandbox=sandbox)
    subject, found, settings = subject_of(run, candidate, layer)
    require_unchanged(subject.problem, layer)
    with wiring.ledger(settings) as ledger:
        way = named(_way(ledger, found, subject.candidate), model)
    home = entries.root(config.here(layer).results)

    def require_new(machine: Machine) -> None:
        entries.require_new(home / shelf(subject.problem.name, subject.arithmetic, machine), subject.candidate)

    result = judged(subject, certificate(layer, display), require_new)
    keep(settings, found, result)
    why, entered, failed = _hindrance(subject, result), None, None
    if why is None:
        try:
            entered = entries.add(_entry(subject, found, way, result), home)
        except (BadInput, StoreUnavailable) as error:  # somebody was faster, or a disk is full: the trial is told still
            why, failed = str(error), error
    screen().print(f"entered: {entered}" if entered else f"not entered: {plain(str(why))}", soft_wrap=True)
    if json:
        told = {"entry": str(entered) if entered else None, "why": why, "run": found.id}
        fault = {"error": why, "exit_code": failed.exit_code} if failed else {}
        answer({**told, **fault, **trial_json(result.trial), "device": subject.device})
    return failed.exit_code if failed else REJECTED if why else 0


def _way(ledger: Ledger, run: Run, candidate: Candidate) -> tuple[Step, ...]:
    """Returns the way from the reference to a kernel.

    Raises:
        BadInput: no reply in the ledger holds its source: it is not from the search.
    """
    tree, exchanges = Tree.read(ledger, run), ledger.exchanges(run.id)
    node = tree.node(candidate.id)
    if node is None or author(candidate, exchanges) is None:
        raise BadInput(f"no model's reply in run {run.id} holds {candidate.id}: only the search enters kernels")
    return chain(tree, node, exchanges)


def named(way: Sequence[Step], model: str | None) -> tuple[Step, ...]:
    """Returns the way with a name for whoever answered without one."""

    def name(by: str | None) -> str | None:
        return model or by if by == ANONYMOUS else by

    return tuple(
        step.model_copy(update={"idea_by": name(step.idea_by), "written_by": name(step.written_by)}) for step in way
    )


def _hindrance(subject: Subject, result: Judged) -> str | None:
    """Returns why a kernel cannot be entered; None where it can."""
    trial = result.trial
    if not trial.accepted:
        return f"{trial.outcome.value}: {trial.reasons[0]}"
    if trial.timing is None or trial.speedup is None:
        return "it is accepted, but could not be timed against a baseline here"
    if result.workload != subject.problem.main.name:
        return f"it was timed at {result.workload}, and the leaderboard is about {subject.problem.main.name}"
    return None


def _entry(subject: Subject, run: Run, way: tuple[Step, ...], result: Judged) -> Entry:
    """Returns the entry of a certified kernel."""
    here, model = commit(), way[-1].written_by
    assert model  # else it has no way
    origin = Origin(
        run=run.id,
        begun=run.created,
        model=model,
        machine=run.target.machine if run.target else None,
        certified=datetime.now(UTC),
        agentgen=__version__,
        commit=str(here["id"]) if here else None,
        changed=bool(here and here["changed"]),
    )
    return Entry(problem=subject.problem, candidate=subject.candidate, trial=result.trial, chain=way, origin=origin)
