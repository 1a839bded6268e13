"""The table at the end of a run: who was accepted and how fast, who was not and why, and which kernel is best.

Ranked by the lower end of the speedup's interval over the best baseline, so that a lucky measurement does not win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentgen.records.candidate import SHORT_ID, Candidate
from agentgen.records.idea import Idea
from agentgen.records.trial import Outcome, Trial
from agentgen.report import figures
from agentgen.report.layout import table

_ROOMY = 100
"""Below so many characters an idea beside its figures would be cut to nothing, and gets a table of its own."""


def best(trials: Sequence[Trial]) -> Trial | None:
    """Returns the accepted trial whose speedup interval ends highest at its lower end; None where none was timed."""
    timed = [trial for trial in trials if trial.accepted and trial.speedup]
    return max(timed, key=_rank, default=None)


def end_table(
    candidates: Sequence[Candidate], ideas: Mapping[str, Idea], trials: Mapping[str, Trial], width: int
) -> RenderableType:
    """Returns all that was tried: the accepted ones best first, then the others with their first reason.

    Args:
        candidates: of the run, in the order they were written.
        ideas: by id.
        trials: by the candidate's id; a candidate without one was not evaluated.
        width: of the screen, in characters.
    """
    passed = [candidate for candidate in candidates if candidate.id in trials and trials[candidate.id].accepted]
    accepted = sorted(passed, key=lambda candidate: -_rank(trials[candidate.id]))
    others = [candidate for candidate in candidates if candidate not in passed]
    parts: list[RenderableType] = []
    if accepted:
        roomy = width >= _ROOMY
        parts.append(_accepted(accepted, ideas if roomy else None, trials))
        if not roomy:
            parts.append(_titles(accepted, ideas))
    if others:
        parts.append(_others(others, ideas, trials))
    measured = [trials[c.id] for c in candidates if c.id in trials]
    if measured:
        parts.append(Text(f"on {figures.machine(measured[-1].machine)}", style="dim"))
    return Group(*parts)


def verdict(trials: Sequence[Trial]) -> str:
    """Returns the honest last word on a run in one line."""
    accepted = [trial for trial in trials if trial.accepted]
    count = f"{len(accepted)} of {len(trials)} candidates accepted"
    top = best(accepted)
    if not trials:
        return "no candidate was evaluated"
    if not accepted:
        return f"no candidate was accepted (of {len(trials)})"
    if top is None or top.speedup is None:
        return f"{count}; none could be timed on this device, so none is ranked"
    name = f"{top.candidate[:SHORT_ID]} at {figures.speedup(top.speedup)} against {top.speedup.baseline}"
    if not top.speedup.faster:
        return f"{count}; none is faster than the best baseline beyond doubt (closest: {name})"
    near = top.worst_neighbour
    worst = f"; {near.speedup.ratio:.2f}× at its worst neighbouring shape, {near.workload}" if near else ""
    return f"{count}; best: {name}{worst}"


def _rank(trial: Trial) -> float:
    return trial.speedup.low if trial.speedup else 0.0


def _accepted(candidates: Sequence[Candidate], ideas: Mapping[str, Idea] | None, trials: Mapping[str, Trial]) -> Table:
    numbers = ("median", "speedup", "roofline", "n")
    heads = ("candidate", *(("idea",) if ideas is not None else ()), "language", "outcome")
    shown = table("accepted", *heads, *numbers, right=numbers, wrap=("idea",))
    for candidate in candidates:
        trial = trials[candidate.id]
        shown.add_row(
            candidate.id[:SHORT_ID],
            *((idea_title(candidate, ideas),) if ideas is not None else ()),
            candidate.language.value,
            Text(trial.outcome.value, style="green"),
            figures.time(trial.timing.median_us if trial.timing else None),
            figures.speedup(trial.speedup),
            figures.percent(trial.roofline_fraction),
            str(trial.timing.windows) if trial.timing else figures.NOT_MEASURED,
        )
    raced = {trial.speedup.baseline for candidate in candidates if (trial := trials[candidate.id]).speedup}
    shown.caption = (
        f"speedup over the best baseline ({', '.join(sorted(raced)) or 'none was raced'}) with its 95% interval; "
        "roofline: bound / measured (beyond 100%: fewer operations than the direct method); n: timed windows"
    )
    return shown


def _titles(candidates: Sequence[Candidate], ideas: Mapping[str, Idea]) -> Table:
    shown = table(None, "candidate", "idea", wrap=("idea",))
    for candidate in candidates:
        shown.add_row(candidate.id[:SHORT_ID], idea_title(candidate, ideas))
    return shown


def _others(candidates: Sequence[Candidate], ideas: Mapping[str, Idea], trials: Mapping[str, Trial]) -> Table:
    columns = ("candidate", "idea", "language", "outcome", "first reason")
    shown = table("not accepted", *columns, wrap=("idea", "first reason"))
    for candidate in candidates:
        trial = trials.get(candidate.id)
        shown.add_row(
            candidate.id[:SHORT_ID],
            idea_title(candidate, ideas),
            candidate.language.value,
            Text(trial.outcome.value, style=outcome_style(trial.outcome)) if trial else "not evaluated",
            Text(first_reason(trial.reasons) if trial else ""),
        )
    return shown


def first_reason(reasons: Sequence[str]) -> str:
    """Returns the first line of the first reason: a compiler's message has many, and the first says where and what."""
    return next((line.strip() for reason in reasons for line in reason.splitlines() if line.strip()), "")


def idea_title(candidate: Candidate, ideas: Mapping[str, Idea]) -> Text:
    """Returns the title of a candidate's idea, or what it says that it changed where it has none, cut to one row; a
    model wrote it, so it is never read as markup."""
    idea = ideas.get(candidate.idea or "")
    repaired = f"repair {candidate.repair}: " if candidate.repair else ""
    # The cut comes at the end, so what tells repairs from their first version stands first.
    words = idea.title if idea else candidate.change or figures.NOT_MEASURED
    return Text(repaired + words, no_wrap=True, overflow="ellipsis")


def outcome_style(outcome: Outcome) -> str:
    """Returns the colour of an outcome."""
    if outcome is Outcome.PASSED:
        return "green"
    return {Outcome.CHEATED: "bold red", Outcome.NOT_RUN: "yellow"}.get(outcome, "red")
