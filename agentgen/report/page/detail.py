"""What the page shows of one candidate or idea, once it is selected: words and tables, which the browser lays out.

Numbers are written here, the way all reports write them. Sources go along untouched, so that they can be copied; how
they are shown is `code.js`'s part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentgen.records.candidate import SHORT_ID, Candidate
from agentgen.records.idea import Became, Idea
from agentgen.records.trial import EAGER, Accuracy, Speedup, Trial
from agentgen.report import figures
from agentgen.report.page.outcome import family
from agentgen.report.page.text import clip, visible
from agentgen.report.page.tree import ROOT, candidate_key, headline, idea_key, lay_out
from agentgen.report.solution import Solution
from agentgen.report.table import first_reason

LONGEST_SOURCE = 200_000
"""Characters of a source that the page carries; kernels have a tenth."""

Table = dict[str, Any]


def details(solution: Solution, became: Mapping[str, Became]) -> dict[str, dict[str, object]]:
    """Returns everything that is not on the page from the start, by key, in the order of the tree."""
    ideas = {idea_key(idea.id): idea for idea in solution.ideas.values()}
    candidates = {candidate_key(candidate.id): (n, candidate) for n, candidate in enumerate(solution.candidates, 1)}
    reference = shown_source(solution.run.problem.reference)
    root: dict[str, object] = {"kind": "root", "label": "the reference", "source": reference}
    found = {ROOT: root}
    for spot in lay_out(solution).spots:
        if spot.key in ideas:
            idea = ideas[spot.key]
            found[spot.key] = _idea(idea, became.get(idea.id), spot.parent)
        elif spot.key in candidates:
            found[spot.key] = _candidate(solution, *candidates[spot.key])
    return found


def _idea(idea: Idea, became: Became | None, parent: str | None) -> dict[str, object]:
    predicted = f"{idea.predicted_speedup:.2f}×" if idea.predicted_speedup else figures.NOT_MEASURED
    facts = [["kind", idea.category.value], ["predicted", f"{predicted} over its parent"]]
    if became:
        gain = became.gain
        reached = f"{gain.ratio:.2f}× [{gain.low:.2f}, {gain.high:.2f}]" if gain else figures.NOT_MEASURED
        facts += [["reached", reached], ["kernels", str(became.candidates)]]
        if became.failure:
            facts.append(["failed", visible(became.failure)])
    if idea.same_as:
        facts.append(["known as", idea_key(idea.same_as)[: 1 + SHORT_ID]])
    return {
        "kind": "idea",
        "parent": parent,
        "title": visible(idea.title),
        "reasoning": visible(idea.explained),
        "facts": facts,
    }


def _candidate(solution: Solution, number: int, candidate: Candidate) -> dict[str, object]:
    trial = solution.trials.get(candidate.id)
    known = {one.id for one in solution.candidates}
    idea = solution.ideas.get(candidate.idea or "")
    found: dict[str, object] = {
        "kind": "candidate",
        "number": number,
        "id": candidate.id,
        "label": headline(solution, candidate),
        "parent": candidate_key(candidate.parent) if candidate.parent in known and candidate.parent else ROOT,
        "idea": idea_key(idea.id) if idea else None,
        "language": candidate.language.value,
        "repair": candidate.repair,
        "round": solution.rounds.get(candidate.id),
        "family": family(trial).name,
        "outcome": trial.outcome.value if trial else "not evaluated",
        "source": shown_source(candidate.source),
    }
    return {**found, **(_found(trial) if trial else {})}


def shown_source(text: str) -> str:
    """Returns a source as it travels with a page: whole, unless no kernel is so long."""
    left_out = len(text) - LONGEST_SOURCE
    return f"{text[:LONGEST_SOURCE]}\n… {left_out:,} more characters are left out here" if left_out > 0 else text


def _found(trial: Trial) -> dict[str, object]:
    timing, speedup = trial.timing, trial.speedup
    facts: list[list[str]] = []
    if timing:
        quartiles = f"quartiles {figures.time(timing.low_us)} to {figures.time(timing.high_us)}"
        windows = f"{timing.windows} windows of {timing.calls_per_window} cold calls, {timing.clock.value} clock"
        facts.append(["median", f"{figures.time(timing.median_us)} ({quartiles}; {windows})"])
        facts.append(["roofline", figures.percent(trial.roofline_fraction)])
    if trial.accuracy_class:
        facts.append(["accuracy class", trial.accuracy_class.value])
    return {
        "reasons": [visible(reason) for reason in trial.reasons],
        "reason": clip(first_reason(trial.reasons), 140),
        "median": figures.time(timing.median_us if timing else None),
        "speedup": figures.speedup(speedup),
        "roofline": figures.percent(trial.roofline_fraction),
        "us": timing.median_us if timing else None,
        "low": speedup.low if speedup else None,
        "facts": facts,
        "checks": [[visible(one.name), one.passed, visible(one.evidence)] for one in trial.checks],
        "tables": tables(trial),
        "log": visible(trial.log),
    }


def tiles(trial: Trial, named: str, bound: str) -> list[tuple[str, str, str]]:
    """Returns name, figure and small print of what one wants to know first of a kernel that was timed.

    Args:
        trial: of it.
        named: what its time is called.
        bound: small print beside the roofline.
    """
    found: list[tuple[str, str, str]] = []
    if trial.timing:
        quartiles = f"quartiles {figures.time(trial.timing.low_us)} to {figures.time(trial.timing.high_us)}"
        found.append((named, figures.time(trial.timing.median_us), quartiles))
    # The best baseline, and eager torch where that is another.
    found += [_over(one) for n, one in enumerate(trial.speedups) if n == 0 or one.baseline == EAGER]
    found.append(("of the roofline", figures.percent(trial.roofline_fraction), bound))
    if near := trial.worst_neighbour:
        found.append(("at its worst neighbour", f"{near.speedup.ratio:.2f}×", f"over eager at {near.workload}"))
    return found


def _over(one: Speedup) -> tuple[str, str, str]:
    interval = f"95%: {one.low:.2f} to {one.high:.2f}"
    return f"over {one.baseline}", f"{one.ratio:.2f}×", interval if one.faster else f"{interval}, not beyond doubt"


def tables(trial: Trial) -> list[Table]:
    """Returns all figures of a trial, as tables that are not empty."""
    found = [_speedups(trial), _neighbours(trial), _accuracy(trial), _build(trial), _profile(trial), _stages(trial)]
    return [one for one in found if one["rows"]]


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    return {"title": title, "heads": heads, "rows": [[visible(cell) for cell in row] for row in rows]}


def _speedups(trial: Trial) -> Table:
    rows = [
        (one.baseline, figures.time(one.baseline_us), figures.speedup(one), "yes" if one.faster else "not beyond doubt")
        for one in trial.speedups
    ]
    return _table("Against the baselines", ("baseline", "its median", "speedup [95%]", "faster"), rows)


def _neighbours(trial: Trial) -> Table:
    rows = [(one.workload, figures.time(one.median_us), figures.speedup(one.speedup)) for one in trial.neighbours]
    return _table("At neighbouring shapes", ("shape", "its median", "over eager torch [95%]"), rows)


def _accuracy(trial: Trial) -> Table:
    """The worst family of each workload, as `verify` shows it."""
    worst: dict[str, Accuracy] = {}
    for row in sorted(trial.accuracy, key=lambda row: row.share_of_limit if row.gated else -1.0):
        worst[row.workload] = row
    rows = [
        (
            row.workload,
            row.family,
            figures.error(row.relative_l2),
            figures.error(row.gate) if row.gated else "reported only",
            figures.error(row.torch_relative_l2),
            figures.error(row.worst_element),
        )
        for row in worst.values()
    ]
    title = f"Accuracy, the worst family of {len(trial.accuracy)} rows"
    return _table(title, ("workload", "family", "relative L2", "gate", "torch's own", "worst element"), rows)


def _build(trial: Trial) -> Table:
    rows = [(one.kernel, *_numbers(one.registers, one.spill_bytes, one.shared_bytes)) for one in trial.build]
    return _table("Build", ("kernel", "registers", "spilled bytes", "shared bytes"), rows)


def _profile(trial: Trial) -> Table:
    rows = [
        (
            one.kernel,
            f"{one.launches:.3g}",
            f"{one.us:.4g}",
            figures.percent(one.share),
            *_numbers(one.threads, one.blocks, one.registers, one.shared_bytes),
        )
        for one in trial.profile
    ]
    heads = ("kernel", "launches", "µs a call", "share", "threads", "blocks", "registers", "shared bytes")
    return _table("Device time by kernel, as the guest's profiler told", heads, rows)


def _stages(trial: Trial) -> Table:
    rows = [tuple(f"{seconds:.2f}" for seconds in trial.seconds.values())] if trial.seconds else []
    return _table("Seconds of the judge", tuple(trial.seconds), rows)


def _numbers(*values: int | None) -> list[str]:
    return [figures.NOT_MEASURED if value is None else f"{value:,}" for value in values]
