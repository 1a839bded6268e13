"""What a run has cost, by role and by stage, and how much of it had been spent when each candidate was judged.

The clock on the wall is not stored: what is, are seconds of each answer (where its server was timed) and of each stage
of each trial. Ideas go their ways side by side, so the sum is work, and not how long anybody waited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentgen.records.candidate import Candidate
from agentgen.records.chat import Role
from agentgen.report.solution import Solution
from agentgen.store.rows import Letter


@dataclass(frozen=True, slots=True)
class Bill:
    """Some exchanges with models, summed. None: of some answer it is not known."""

    name: str
    requests: int
    answered: int
    input_tokens: int | None
    output_tokens: int | None
    usd: float | None
    seconds: float | None


def bills(letters: Sequence[Letter]) -> tuple[Bill, ...]:
    """Returns one bill per role, in the order in which a search needs them, and their sum where there are several."""
    roles = [role for role in Role if any(letter.role is role for letter in letters)]
    found = [_bill(role.value, [letter for letter in letters if letter.role is role]) for role in roles]
    return (*found, _bill("all", letters)) if len(found) > 1 else tuple(found)


def _bill(name: str, letters: Sequence[Letter]) -> Bill:
    answered = [letter for letter in letters if letter.answered]
    usd = _whole([letter.cost_usd for letter in answered])
    seconds = _whole([letter.seconds for letter in answered])
    into, out = _whole([x.input_tokens for x in answered]), _whole([x.output_tokens for x in answered])
    return Bill(
        name,
        len(letters),
        len(answered),
        None if into is None else int(into),
        None if out is None else int(out),
        usd,
        seconds,
    )


def _whole(amounts: Sequence[float | None]) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known and len(known) == len(amounts) else None


def not_drawn(letters: Sequence[Letter]) -> tuple[str, ...]:
    """Returns in words what of the cost of the answers no chart can show, and why."""
    whole, told = _bill("all", letters), list[str]()
    if whole.seconds is None:
        told.append("The answers of this run were not timed.")
    if whole.usd is None:
        told.append("What they cost is not stored, so nothing is drawn over dollars.")
    elif whole.usd == 0:
        told.append("They cost nothing, so nothing is drawn over dollars.")
    return tuple(told)


def stage_seconds(solution: Solution) -> tuple[tuple[str, float], ...]:
    """Returns the judge's seconds per stage, over all trials."""
    found: defaultdict[str, float] = defaultdict(float)
    for trial in solution.trials.values():
        for stage, seconds in trial.seconds.items():
            found[stage] += seconds
    return tuple(found.items())


@dataclass(frozen=True, slots=True)
class Spending:
    """What had been spent when a candidate was judged. None: not stored."""

    evaluations: int
    minutes: float
    usd: float | None
    tokens: int | None


def spending(solution: Solution, letters: Sequence[Letter]) -> dict[str, Spending]:
    """Returns, by candidate in the order of their trials, what all before it and itself had cost.

    A candidate is charged with every answer up to the one that it was written in.
    """
    answers = [letter for letter in letters if letter.answered]
    asked = _asked(solution.candidates, answers)
    written = {candidate.id for candidate in solution.candidates}
    order = [candidate_id for candidate_id in solution.trials if candidate_id in written]
    known_usd, known_tokens = _all_known(x.cost_usd for x in answers), _all_known(_tokens(x) for x in answers)
    found: dict[str, Spending] = {}
    judged, reached = 0.0, 0
    for number, candidate_id in enumerate(order, 1):
        judged += sum(solution.trials[candidate_id].seconds.values())
        reached = max(reached, asked.get(candidate_id, 0))
        before = answers[:reached]
        found[candidate_id] = Spending(
            number,
            (judged + sum(letter.seconds or 0.0 for letter in before)) / 60,
            sum(letter.cost_usd or 0.0 for letter in before) if known_usd else None,
            sum(_tokens(letter) or 0 for letter in before) if known_tokens else None,
        )
    return found


def _asked(candidates: Iterable[Candidate], answers: Sequence[Letter]) -> dict[str, int]:
    """Returns how many answers had come with the one that each candidate is from: the n-th rewrite of an idea in a
    language is from the n-th of its answers, the last where there are fewer."""
    places: defaultdict[tuple[Role, str], list[int]] = defaultdict(list)
    for count, letter in enumerate(answers, 1):
        places[letter.role, letter.parent].append(count)
    used: defaultdict[tuple[Role, str], int] = defaultdict(int)
    found: dict[str, int] = {}
    for candidate in candidates:
        role = Role.REPAIR if candidate.repair else Role.WRITE if candidate.idea else Role.REFINE
        place = role, (candidate.idea if role is Role.WRITE else candidate.parent) or ""
        there = places.get(place)
        if there:
            found[candidate.id] = there[min(used[place], len(there) - 1)]
            used[place] += 1
    return found


def _tokens(letter: Letter) -> int | None:
    if letter.input_tokens is None or letter.output_tokens is None:
        return None
    return letter.input_tokens + letter.output_tokens


def _all_known(amounts: Iterable[float | None]) -> bool:
    found = list(amounts)
    return bool(found) and all(amount is not None for amount in found)
