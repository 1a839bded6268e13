"""How the best kernel came about, one idea after the other, and what went wrong on the way of the whole run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentgen.records.candidate import Candidate
from agentgen.records.entry import Step as Link
from agentgen.records.score import Score
from agentgen.records.trial import Trial
from agentgen.report import figures
from agentgen.report.page.outcome import FAMILIES, Family, family
from agentgen.report.page.text import clip
from agentgen.report.page.tree import candidate_key
from agentgen.report.solution import Solution
from agentgen.report.table import best, first_reason


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel on the way to the best one, in words."""

    key: str
    number: int | None
    """In its run; None: not known."""
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
    by: str
    """Who wrote it, where that is told."""
    share: float
    """Of the last step's speedup, for a bar."""


def chain(solution: Solution) -> tuple[Step, ...]:
    """Returns the steps to the best kernel, the first one first; nothing where none was ranked."""
    top = best(solution.evaluated)
    if top is None or top.speedup is None:
        return ()
    numbers = {candidate.id: number for number, candidate in enumerate(solution.candidates, 1)}
    return told([_link(solution, candidate) for candidate in _lineage(solution, top.candidate)], numbers)


def told(links: Sequence[Link], numbers: Mapping[str, int]) -> tuple[Step, ...]:
    """Returns the steps of a way that is known, and the number that each kernel has in its run."""
    last = links[-1].score.speedup if links[-1].score else None
    steps: list[Step] = []
    before: Score | None = None
    for link in links:
        steps.append(_step(link, numbers.get(link.candidate), before, last.ratio if last else None))
        before = link.score if link.score and link.score.speedup else before
    return tuple(steps)


def _link(solution: Solution, candidate: Candidate) -> Link:
    trial, idea = solution.trials.get(candidate.id), solution.ideas.get(candidate.idea or "")
    score = Score.of(trial) if trial else None
    return Link(
        candidate=candidate.id,
        language=candidate.language,
        repair=candidate.repair,
        idea=idea,
        change=None if idea else candidate.change,
        score=score,
    )


def _lineage(solution: Solution, last: str) -> list[Candidate]:
    known = {candidate.id: candidate for candidate in solution.candidates}
    line: dict[str, Candidate] = {}
    one = known.get(last)
    while one is not None and one.id not in line:
        line[one.id] = one
        one = known.get(one.parent or "")
    return list(line.values())[::-1]


def _step(link: Link, number: int | None, before: Score | None, last: float | None) -> Step:
    idea, score = link.idea, link.score
    speedup, earlier = score.speedup if score else None, before.speedup if before else None
    return Step(
        key=candidate_key(link.candidate),
        number=number,
        title=idea.title if idea else link.change or "A program without an idea in words",
        category=idea.category.value if idea else "",
        reasoning=idea.explained if idea and not link.repair else "",
        language=link.language.value,
        repair=link.repair,
        outcome=score.outcome.value if score else "not evaluated",
        family=family(score),
        reason=first_reason((score.reason,)) if score and score.reason else "",
        median=figures.time(score.median_us if score else None),
        speedup=figures.speedup(speedup),
        predicted=f"{idea.predicted_speedup:.2f}×" if idea and idea.predicted_speedup else "",
        gain=f"{speedup.ratio / earlier.ratio:.2f}×" if speedup and earlier else "",
        by=link.written_by or "",
        share=min(speedup.ratio / last, 1.0) if speedup and last else 0.0,
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
