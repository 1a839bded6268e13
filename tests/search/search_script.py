"""A search with a known course: three ideas, one that crashes and is repaired, two ideas on each parent."""

from __future__ import annotations

from collections.abc import Callable

from search_factories import PROBLEM, Answer, ReplayJudge, ScriptedModel, fenced, ideas_json, make_run, source_text

from agentgen.models.roster import Roster
from agentgen.records import events
from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.run import Plan, RunStatus
from agentgen.records.trial import Trial
from agentgen.search.loop import SearchResult, run_search
from agentgen.store.ledger import Ledger

ROOT = PROBLEM.root(make_run(Plan()).arithmetic)
PLAN = Plan(rounds=2, parents=2, ideas=3, next_ideas=2, repairs=1, rewrites=0)
DONE = SearchResult(RunStatus.DONE)


def ignore(_event: events.Event) -> None:
    """Watches nothing."""


def idea_title(request: ChatRequest) -> str:
    """Returns the title of the idea that a write request is for."""
    return request.prompt.split("# The idea to implement\n\n**")[1].split("**")[0]


VERDICTS = {"Wide": "1.30", "Tiles": "CRASHED", "Threads": "1.10", "Unroll": "1.60", "Prefetch": "0.90"}


def script(request: ChatRequest) -> Answer:
    """Three ideas on the root, two on every other; `Tiles` crashes and is repaired into 1.20."""
    match request.role:
        case Role.IDEAS:
            return ideas_json(*(("Wide", "Tiles", "Threads") if request.parent == ROOT else ("Unroll", "Prefetch")))
        case Role.WRITE:
            return fenced(source_text(VERDICTS[idea_title(request)]))
        case Role.REPAIR:
            return fenced(source_text("1.20"))
        case Role.REFINE:
            return fenced(source_text(f"1.{request.prompt.count('- program'):02}"))


def search(
    ledger: Ledger,
    model: ScriptedModel,
    judge: ReplayJudge,
    plan: Plan = PLAN,
    languages: tuple[Language, ...] = (Language.CPP,),
    watch: Callable[[events.Event], None] = ignore,
) -> SearchResult:
    """Starts the run, or goes on with it."""
    if not ledger.runs():
        ledger.create_run(make_run(plan, languages))
    return run_search(ledger.run("latest"), ledger, Roster.of(model), judge, watch)


def told(ledger: Ledger) -> list[tuple[int, str, str, str, str | float]]:
    """Returns the candidates of the run in a readable form: round, idea, language, parent's idea, what was found."""
    titles = {row.idea.id: row.idea.title for row in ledger.ideas("run-1")}
    found = {trial.candidate: trial for trial in ledger.trials("run-1")}
    candidates = {row.candidate.id: row.candidate for row in ledger.candidates("run-1")}

    def name(candidate: Candidate | None) -> str:
        return titles[candidate.idea or ""] + "'" * candidate.repair if candidate else "-"

    def verdict(trial: Trial | None) -> str | float:
        if trial is None:
            return "open"
        return round(trial.speedup.ratio, 2) if trial.speedup else trial.outcome.value

    return [
        (
            row.round,
            name(row.candidate),
            row.candidate.language.value,
            name(candidates.get(row.candidate.parent or "")),
            verdict(found.get(row.candidate.id)),
        )
        for row in ledger.candidates("run-1")
    ]


WHOLE = [
    (1, "Wide", "cpp", "-", 1.3),
    (1, "Tiles", "cpp", "-", "CRASHED"),
    (1, "Threads", "cpp", "-", 1.1),
    (1, "Tiles'", "cpp", "Tiles", 1.2),
    (2, "Unroll", "cpp", "Wide", 1.6),
    (2, "Prefetch", "cpp", "Wide", 0.9),
    (2, "Unroll", "cpp", "Tiles'", 1.6),
    (2, "Prefetch", "cpp", "Tiles'", 0.9),
]


def contents(ledger: Ledger) -> tuple[object, ...]:
    """Returns all that the ledger holds of the run."""
    return (
        ledger.run("run-1"),
        ledger.ideas("run-1"),
        ledger.candidates("run-1"),
        ledger.trials("run-1"),
        ledger.exchanges("run-1"),
    )


def trees(ledger: Ledger) -> tuple[object, ...]:
    """Returns what the ledger holds of the run without what a race or a clock decides: the order in which things came,
    and how long a model took."""
    exchanges = ledger.exchanges("run-1")
    return (
        ledger.run("run-1"),
        {row.idea.id: row for row in ledger.ideas("run-1")},
        {row.candidate.id: row for row in ledger.candidates("run-1")},
        {trial.candidate: trial for trial in ledger.trials("run-1")},
        {one.request.id: (one.request, one.ended, one.reply and one.reply.text) for one in exchanges},
    )
