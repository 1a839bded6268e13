"""Who stands where: entries of the leaderboard that may be compared, and their ranks.

1. A board holds the entries of one problem in one arithmetic that were certified on one kind of machine. What makes a
   kind is what the gate between evaluations goes by (`scoring.gate.OF_A_KIND`): the hardware, torch and triton, for a
   speedup is over what torch made of the problem. Driver, CUDA and Python part nothing, and are told where they differ.
   A problem that was changed is another one: kernels for what it was before stand on a board of their own.
2. Entries stand in the order of the lower ends of their speedups' intervals, as the candidates of a run do.
3. An entry whose interval reaches as far as that of the first of its rank, by the margin that identical kernels in two
   processes differ by, shares the rank: a tie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentgen.records.entry import Entry
from agentgen.records.machine import Machine
from agentgen.records.trial import Speedup, margin
from agentgen.scoring.again import SAID
from agentgen.scoring.gate import OF_A_KIND
from agentgen.store.entries import Kept, statement


@dataclass(frozen=True, slots=True)
class Place:
    """An entry on its board."""

    rank: int
    tied: bool
    """Others have the same rank."""
    kept: Kept

    @property
    def entry(self) -> Entry:
        """The record."""
        return self.kept.entry


@dataclass(frozen=True, slots=True)
class Board:
    """Entries that may be compared, the fastest first."""

    problem: str
    arithmetic: str
    machine: Machine
    """That of the first: the others' are of its kind."""
    places: tuple[Place, ...]

    @property
    def statement(self) -> str:
        """Which problem it is, of those that had its name: a content hash."""
        return statement(self.places[0].entry.problem)

    @property
    def unlike(self) -> dict[str, tuple[str, ...]]:
        """What differs between the machines all the same."""
        found = {
            field: tuple(sorted({str(getattr(place.entry.trial.machine, field)) for place in self.places}))
            for field in SAID
        }
        return {field: values for field, values in found.items() if len(values) > 1}


@dataclass(frozen=True, slots=True)
class Standing:
    """One model, over all boards."""

    model: str
    entries: int
    boards: int
    firsts: int
    """Boards on which one of its kernels has rank 1, ties included."""
    best: tuple[tuple[Board, int], ...]
    """Its best rank on each board that it is on."""


def boards(kept: Iterable[Kept]) -> tuple[Board, ...]:
    """Returns the boards, by problem, arithmetic and device."""
    groups: defaultdict[tuple[str, ...], list[Kept]] = defaultdict(list)
    for one in kept:
        trial = one.entry.trial
        kind = tuple(str(getattr(trial.machine, field)) for field in OF_A_KIND)
        stated = statement(one.entry.problem)
        groups[(trial.problem, trial.arithmetic.value, trial.machine.device, *kind, stated)].append(one)
    return tuple(_board(groups[key]) for key in sorted(groups))


def by_model(found: Sequence[Board]) -> tuple[Standing, ...]:
    """Returns the models that wrote the kernels, those with most first ranks first."""
    models = {place.entry.origin.model for board in found for place in board.places}
    standings = (_standing(model, found) for model in models)
    return tuple(sorted(standings, key=lambda one: (-one.firsts, -one.boards, -one.entries, one.model)))


def _board(group: Sequence[Kept]) -> Board:
    ordered = sorted(group, key=lambda one: (-_speedup(one).low, one.entry.id))
    ranks: list[int] = []
    first = ordered[0]  # of the rank that is being given
    for position, one in enumerate(ordered):
        if position and not _reaches(one, first):
            first = one
        ranks.append(ranks[-1] if position and one is not first else position + 1)
    places = (Place(rank, ranks.count(rank) > 1, one) for rank, one in zip(ranks, ordered, strict=True))
    trial = ordered[0].entry.trial
    return Board(trial.problem, trial.arithmetic.value, trial.machine, tuple(places))


def _reaches(one: Kept, other: Kept) -> bool:
    assert one.entry.trial.timing  # a certificate has one
    return _speedup(one).high * (1 + margin(one.entry.trial.timing.median_us)) >= _speedup(other).low


def _speedup(one: Kept) -> Speedup:
    found = one.entry.trial.speedup
    assert found  # as above
    return found


def _standing(model: str, found: Sequence[Board]) -> Standing:
    ranks = [(board, [place.rank for place in board.places if place.entry.origin.model == model]) for board in found]
    best = tuple((board, min(own)) for board, own in ranks if own)
    return Standing(
        model=model,
        entries=sum(len(own) for _, own in ranks),
        boards=len(best),
        firsts=sum(rank == 1 for _, rank in best),
        best=best,
    )
