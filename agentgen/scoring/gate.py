"""The gate: what changed between two reports beyond chance, and which of it is a regression.

Goes at one case are pooled. Verdicts are compared wherever both reports have the case, times only between machines of
one kind with the same torch and triton (`scoring.times` says when a time has changed).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from agentgen.records.base import Record
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import Solve
from agentgen.scoring.goes import DUE, Goes, by_case
from agentgen.scoring.rates import Rate
from agentgen.scoring.times import Times

ALARM: Final = 0.001
"""How often an evaluation without any change may be called slower somewhere, over all of its cases."""
SUSPICION: Final = 0.05
"""How often a case without any change may be done again before that is said of it."""
CHANCE: Final = 0.05
"""So rare has a fall to be by chance where a problem is solved anew in every go."""
OF_A_KIND: Final = ("device_type", "device", "cores", "last_level_cache_bytes", "torch", "triton")
"""What machines share whose times are compared. Not the driver: whether that slows something is to be seen."""


class Kind(StrEnum):
    """What became of a case."""

    LOST = "lost"
    """What was asserted held, and does not any more."""
    CRASHED = "crashed"
    """The machine failed where the case had been done."""
    SLOWER = "slower"
    MISSING = "missing"
    """A case, or an assertion of all cases, is not there any more."""
    GAINED = "gained"
    RECOVERED = "runs again"
    FASTER = "faster"
    NEW = "new"
    NOT_COMPARED = "not compared"


REGRESSIONS: Final = frozenset({Kind.LOST, Kind.CRASHED, Kind.SLOWER, Kind.MISSING})


class Change(Record):
    """One difference between two reports."""

    kind: Kind
    case: str
    what: str = ""
    """Assertions, or the baseline that was raced."""
    old: str = ""
    new: str = ""

    @property
    def regression(self) -> bool:
        """Whether something got worse."""
        return self.kind in REGRESSIONS

    @property
    def line(self) -> str:
        """All of it, in one line."""
        sides = " -> ".join(side for side in (self.old, self.new) if side)
        about = ": ".join(part for part in (f"{self.kind}: {self.case}", self.what, sides) if part)
        return " ".join(about.split())


def compare(new: Report, old: Report, again: Report | None = None) -> tuple[Change, ...]:
    """Returns what changed, regressions first.

    Args:
        new: The report of now.
        old: The baseline.
        again: Further goes of now at the cases that were `suspects`.
    """
    olds, news = by_case(old), by_case(new, *([again] if again else []))
    both = _both(news, olds)
    changes = [
        *_missing(olds, news, new),
        *(change for name, sides in both.items() for change in _verdicts(name, *sides)),
        *_times(both, new, old, by_case(again) if again else {}),
        *(Change(kind=Kind.NEW, case=name, new=news[name].said()) for name in news if name not in olds),
    ]
    return tuple(sorted(changes, key=lambda change: list(Kind).index(change.kind)))


def suspects(new: Report, old: Report) -> tuple[str, ...]:
    """Returns the cases of kernels that look slower, of which more goes are to tell. A problem is not solved again for
    that: it costs what it costs, and another kernel is no evidence on this one."""
    if _unlike(new, old):
        return ()
    timed = _timed(_both(by_case(new), by_case(old)))
    kernels = {case.source_case_name or case.name for case in new.cases if not isinstance(case.inputs, Solve)}
    return tuple(name for name, times in timed.items() if name in kernels and times.slower() < SUSPICION)


def least_told(new: Report, old: Report, again: Report | None = None) -> dict[str, float]:
    """Returns the smallest slowdown that would have been told from chance, of each case whose times are compared: 0.05
    is slower by 5%."""
    if _unlike(new, old):
        return {}
    timed = _timed(_both(by_case(new, *([again] if again else [])), by_case(old)))
    return {name: times.least(ALARM / len(timed)) for name, times in timed.items()}


def _both(news: Mapping[str, Goes], olds: Mapping[str, Goes]) -> dict[str, tuple[Goes, Goes]]:
    """Returns the goes of then and of now at the cases of both."""
    return {name: (olds[name], news[name]) for name in olds if name in news}


def _missing(olds: Mapping[str, Goes], news: Mapping[str, Goes], new: Report) -> Iterator[Change]:
    device = ((new.experiment_metadata or {}).get("machine") or {}).get("device_type")
    for name, goes in olds.items():
        if name not in news and (device is None or goes.decidable(device)):
            yield Change(kind=Kind.MISSING, case=name, old=goes.said(), new="no such case")
    asked = {name for goes in news.values() for name in goes.held}
    if asked:
        for name in sorted({name for goes in olds.values() for name in goes.held} - asked):
            yield Change(kind=Kind.MISSING, case="every case", what=name, new="is asserted no more")


def _verdicts(name: str, old: Goes, new: Goes) -> Iterator[Change]:
    sides = {"old": old.said(), "new": new.said()}
    if _fell(old.ran, new.ran, by_chance=False):
        yield Change(kind=Kind.CRASHED, case=name, **sides)
    elif _fell(new.ran, old.ran, by_chance=False):
        yield Change(kind=Kind.RECOVERED, case=name, **sides)
    for kind, before, after in ((Kind.LOST, old, new), (Kind.GAINED, new, old)):
        fallen = [
            asserted
            for asserted in before.held
            if asserted in after.held and _fell(before.held[asserted], after.held[asserted], by_chance=new.solved)
        ]
        # That the verdict is the one that is due is worth a word only where no assertion of the dataset says so.
        if named := [asserted for asserted in fallen if asserted != DUE] or fallen:
            yield Change(kind=kind, case=name, what=", ".join(named), **sides)


def _fell(before: Rate, after: Rate, *, by_chance: bool) -> bool:
    """Whether what held does not any more. A kernel's verdict should be the same in every go: what always held must
    hold always, what held at times must hold at times. A search may fail where it succeeded: of several goes, their
    number has to tell it from chance."""
    if not before.of or not after.of:
        return False
    if by_chance and min(before.of, after.of) > 1:
        return after.fewer_than(before) < CHANCE
    always, at_times = before.count == before.of, before.count > 0
    return (always and after.count < after.of) or (at_times and after.count == 0)


def _times(
    both: Mapping[str, tuple[Goes, Goes]], new: Report, old: Report, again: Mapping[str, Goes]
) -> Iterator[Change]:
    timed = _timed(both)
    if unlike := _unlike(new, old):
        if timed:
            yield Change(kind=Kind.NOT_COMPARED, case="times", old=unlike[0], new=unlike[1])
        return
    for name, (before, now) in both.items():
        if name not in timed and before.raced and now.raced:
            words = "single goes found other kernels" if now.solved else "no baseline was raced in all goes"
            yield Change(kind=Kind.NOT_COMPARED, case=f"times of {name}", what=words)
    level = ALARM / max(1, len(timed))
    for name, times in timed.items():
        kind = Kind.SLOWER if times.slower() < level else Kind.FASTER if times.faster() < level else None
        # Goes of one evaluation share their judge, and what else the machine did then: those done again have to say so
        # by themselves.
        late = Times.of(both[name][0], again[name]) if name in again else None
        if kind is Kind.SLOWER and late and late.slower() >= SUSPICION:
            kind = None
        if kind:
            then, now = times.said()
            what = f"by {100 * abs(times.change):.1f}%, of its speedup over {times.baseline}"
            yield Change(kind=kind, case=name, what=what, old=then, new=now)


def _timed(both: Mapping[str, tuple[Goes, Goes]]) -> dict[str, Times]:
    return {name: times for name, sides in both.items() if (times := Times.of(*sides))}


def _unlike(new: Report, old: Report) -> tuple[str, ...]:
    """Returns what tells the machines of two reports apart, of the old one first; empty: nothing does."""
    machines: list[dict[str, Any]] = [(one.experiment_metadata or {}).get("machine") or {} for one in (old, new)]
    apart = [field for field in OF_A_KIND if machines[0].get(field) != machines[1].get(field)]
    return tuple(", ".join(f"{field} {machine.get(field)}" for field in apart) for machine in machines if apart)
