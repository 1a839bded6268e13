"""How the best kernel came about, one idea after the other, and what went wrong on the way of the whole run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentgen.records.candidate import Candidate
from agentgen.records.trial import Trial
from agentgen.report import figures
from agentgen.report.page.outcome import FAMILIES, Family, family
from agentgen.report.page.text import clip
from agentgen.report.page.tree import candidate_key
from agentgen.report.solution import Solution
from agentgen.report.table import best, first_reason


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel on the way to the best one."""

    key: str
    number: int
    title: str
    category: str
    reasoning: str
    language: str
    repair: int
    outcome: str
    family: Family
    reason: str
    median: str
    speedup: str
    """Over the best baseline, with its interval."""
    predicted: str
    gain: str
    """Over the step before it that was timed."""
    share: float = 0.0
    """Of the last step's speedup, for a bar."""


def chain(solution: Solution) -> tuple[Step, ...]:
    """Returns the steps to the best kernel, the first one first; nothing where none was ranked."""
    top = best(solution.evaluated)
    if top is None or top.speedup is None:
        return ()
    numbers = {candidate.id: number for number, candidate in enumerate(solution.candidates, 1)}
    steps: list[Step] = []
    before: Trial | None = None
    for candidate in _lineage(solution, top.candidate):
        trial = solution.trials.get(candidate.id)
        step = _step(solution, candidate, numbers[candidate.id], trial, before)
        share = trial.speedup.ratio / top.speedup.ratio if trial and trial.speedup else 0.0
        steps.append(replace(step, share=min(share, 1.0)))
        before = trial if trial and trial.speedup else before
    return tuple(steps)


def _lineage(solution: Solution, last: str) -> list[Candidate]:
    known = {candidate.id: candidate for candidate in solution.candidates}
    line: dict[str, Candidate] = {}
    one = known.get(last)
    while one is not None and one.id not in line:
        line[one.id] = one
        one = known.get(one.parent or "")
    return list(line.values())[::-1]


def _step(solution: Solution, candidate: Candidate, number: int, trial: Trial | None, before: Trial | None) -> Step:
    idea = solution.ideas.get(candidate.idea or "")
    speedup, earlier = trial.speedup if trial else None, before.speedup if before else None
    gain = ""
    if speedup and earlier:
        gain = f"{speedup.ratio / earlier.ratio:.2f}×"
    return Step(
        key=candidate_key(candidate.id),
        number=number,
        title=idea.title if idea else "A program without an idea in words",
        category=idea.category.value if idea else "",
        reasoning=idea.reasoning if idea and not candidate.repair else "",
        language=candidate.language.value,
        repair=candidate.repair,
        outcome=trial.outcome.value if trial else "not evaluated",
        family=family(trial),
        reason=first_reason(trial.reasons) if trial else "",
        median=figures.time(trial.timing.median_us if trial and trial.timing else None),
        speedup=figures.speedup(speedup),
        predicted=f"{idea.predicted_speedup:.2f}×" if idea and idea.predicted_speedup else "",
        gain=gain,
    )


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that went wrong, and the kernels that it went wrong in."""

    outcome: str
    family: Family
    reason: str
    keys: tuple[tuple[str, int], ...]
    """With the number of each."""


_TOLD = 160


def troubles(solution: Solution) -> tuple[Trouble, ...]:
    """Returns what kernels failed of, the most frequent first. Reasons that differ in their numbers count as one."""
    found: dict[tuple[str, str], list[tuple[str, int, Trial]]] = {}
    for number, candidate in enumerate(solution.candidates, 1):
        trial = solution.trials.get(candidate.id)
        if trial and not trial.accepted:
            reason = clip(first_reason(trial.reasons), _TOLD)
            alike = re.sub(r"\d+", "#", reason)
            found.setdefault((trial.outcome.value, alike), []).append((candidate_key(candidate.id), number, trial))
    ordered = sorted(found.values(), key=lambda group: -len(group))
    return tuple(
        Trouble(
            group[0][2].outcome.value,
            family(group[0][2]),
            clip(first_reason(group[0][2].reasons), _TOLD),
            tuple((key, number) for key, number, _ in group),
        )
        for group in ordered
    )


def counts(solution: Solution) -> Sequence[tuple[Family, int]]:
    """Returns how many candidates came to which end, families of which there is none left out."""
    ends = [family(solution.trials.get(candidate.id)).name for candidate in solution.candidates]
    return [(one, ends.count(one.name)) for one in FAMILIES if one.name in ends]
