"""The gate: what changed between two reports beyond chance, and which of it is a regression.

Goes at one case are pooled. Verdicts are compared wherever both reports have the case, times only between machines of
one kind with the same torch and triton (`scoring.times` says when a time has changed).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final

from agentgen.records.base import Record
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import Solve
from agentgen.scoring.evaluators import outcome_due
from agentgen.scoring.goes import DUE, LONGEST, Goes, by_case
from agentgen.scoring.rates import Rate
from agentgen.scoring.times import Times
from agentgen.scoring.verdicts import Verdict

ALARM: Final = 0.001
"""How often an evaluation without any change may be called slower somewhere, over all of its cases, where goes are
independent."""
SUSPICION: Final = 0.05
"""How often a case without any change may be done again before that is said of it."""
CHANCE: Final = 0.05
"""So rare has a fall to be by chance where a problem is solved anew in every go, over all problems together."""
OF_A_KIND: Final = ("device_type", "device", "cores", "last_level_cache_bytes", "torch", "triton")
"""What machines share whose times are compared. Not the driver: whether that slows a kernel is to be seen."""
SANDBOX: Final = "sandbox"
"""What kernels ran in: the same holds of it."""


class Kind(StrEnum):
    """What became of a case."""

    LOST = "lost"
    """What was asserted held, and does not any more; or an evaluator raises that did not."""
    CRASHED = "crashed"
    """There is no verdict where there was one: the machine failed, say."""
    SLOWER = "slower"
    MISSING = "missing"
    """A case, or an assertion, is not there any more."""
    GAINED = "gained"
    RECOVERED = "runs again"
    FASTER = "faster"
    NEW = "new"
    DUE = "due"
    """Another verdict is due than then."""
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
    chance = CHANCE / max(1, sum(now.solved for _, now in both.values()))
    changes = [
        *_missing(olds, news, new),
        *_unasserted(both),
        *_given(news, olds),
        *(change for name, sides in both.items() for change in _verdicts(name, *sides, chance)),
        *_raised(new, old),
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
    """Returns the smallest slowdown that is told from chance nine times in ten, of each case whose times are compared:
    0.05 is slower by 5%."""
    if _unlike(new, old):
        return {}
    timed = _timed(_both(by_case(new, *([again] if again else [])), by_case(old)))
    return {name: times.least(ALARM / len(timed)) for name, times in timed.items()}


def _both(news: Mapping[str, Goes], olds: Mapping[str, Goes]) -> dict[str, tuple[Goes, Goes]]:
    """Returns the goes of then and of now at the cases of both to which the same is given."""
    both = {name: (olds[name], news[name]) for name in olds if name in news}
    return {name: (old, new) for name, (old, new) in both.items() if old.inputs == new.inputs}


def _given(news: Mapping[str, Goes], olds: Mapping[str, Goes]) -> Iterator[Change]:
    """Says of which cases the dataset says something else than then."""
    for name, old in olds.items():
        new = news.get(name)
        if new and new.inputs != old.inputs:
            yield Change(kind=Kind.NOT_COMPARED, case=name, what="its inputs changed")
        elif new and new.due != old.due:
            yield Change(kind=Kind.DUE, case=name, old=_due(old.due), new=_due(new.due))


def _due(verdict: Verdict | None) -> str:
    return ", ".join((outcome_due(verdict), *verdict.by, *verdict.reasons)) if verdict else "no verdict"


def _missing(olds: Mapping[str, Goes], news: Mapping[str, Goes], new: Report) -> Iterator[Change]:
    device = ((new.experiment_metadata or {}).get("machine") or {}).get("device_type")
    for name, goes in olds.items():
        if name not in news and (device is None or goes.decidable(device)):
            yield Change(kind=Kind.MISSING, case=name, old=goes.said(), new="no such case")


def _unasserted(both: Mapping[str, tuple[Goes, Goes]]) -> Iterator[Change]:
    """Says what is asserted no more of cases that ran: in one line where that is so of all that it was asserted of."""
    ran = {name: sides for name, sides in both.items() if sides[1].runs}
    for asserted in sorted({asserted for old, _ in ran.values() for asserted in old.asserted}):
        had = [name for name, (old, _) in ran.items() if asserted in old.asserted]
        lost = [name for name in had if asserted not in ran[name][1].held]
        for name in ["every case"] if len(lost) == len(had) > 1 else lost:
            yield Change(kind=Kind.MISSING, case=name, what=asserted, new="is asserted no more")


def _raised(new: Report, old: Report) -> Iterator[Change]:
    """Says which evaluators of the whole report raise now."""
    before = {failed.name for failed in old.report_evaluator_failures}
    for failed in new.report_evaluator_failures:
        if failed.name not in before:
            words = f"raised: {failed.error_message[:LONGEST]}"
            yield Change(kind=Kind.LOST, case="the whole report", what=failed.name, new=words)


def _verdicts(name: str, old: Goes, new: Goes, chance: float) -> Iterator[Change]:
    sides = {"old": old.said(), "new": new.said()}
    if _fell(old.ran, new.ran):
        yield Change(kind=Kind.CRASHED, case=name, **sides)
    elif _fell(new.ran, old.ran):
        yield Change(kind=Kind.RECOVERED, case=name, **sides)
    if new.waiting:
        yield Change(kind=Kind.NOT_COMPARED, case=name, what=f"waits for answers in {new.waiting} goes")
    fell = partial(_fell_beyond, chance=chance) if new.solved else _fell
    for kind, before, after in ((Kind.LOST, old, new), (Kind.GAINED, new, old)):
        fallen = [
            asserted
            for asserted in before.held
            if asserted in after.held and fell(before.held[asserted], after.held[asserted])
        ]
        # That the verdict is the one that is due is worth a word only where no assertion of the dataset says so.
        if named := [asserted for asserted in fallen if asserted != DUE] or fallen:
            yield Change(kind=kind, case=name, what=", ".join(named), **sides)
        if kind is Kind.LOST:
            for raising in (raising for raising in new.raised if raising not in {*old.raised, *fallen}):
                yield Change(kind=kind, case=name, what=raising, new=f"raised: {new.raised[raising]}")


def _fell(before: Rate, after: Rate) -> bool:
    """Whether what held of a kernel does not any more. Its verdict should be the same in every go: what always held
    must hold always, what held at times must hold at times."""
    if not before.of or not after.of:
        return False
    always, at_times = before.count == before.of, before.count > 0
    return (always and after.count < after.of) or (at_times and after.count == 0)


def _fell_beyond(before: Rate, after: Rate, chance: float) -> bool:
    """Whether what held of searches does not any more. One may fail where another succeeded, and their number has to
    tell it from chance; but what always held and never does now is lost, of however few goes."""
    if not before.of or not after.of:
        return False
    always, never = before.count == before.of, after.count == 0
    return (always and never) or after.fewer_than(before) < chance


def _times(
    both: Mapping[str, tuple[Goes, Goes]], new: Report, old: Report, again: Mapping[str, Goes]
) -> Iterator[Change]:
    yield from _untimed(both)
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


def _untimed(both: Mapping[str, tuple[Goes, Goes]]) -> Iterator[Change]:
    """Says of which kernels there were times that nothing can be compared with."""
    for name, (before, now) in both.items():
        if before.raced and now.accepted and not now.raced:
            words = "accepted, and not raced: not compared"
            yield Change(kind=Kind.MISSING, case=f"times of {name}", old="raced", new=words)
    if count := sum(before.timed and not before.raced and now.accepted for before, now in both.values()):
        words = "the baseline was made before races were kept"
        yield Change(kind=Kind.NOT_COMPARED, case=f"times of {count} of {len(both)} cases", what=words)


def _timed(both: Mapping[str, tuple[Goes, Goes]]) -> dict[str, Times]:
    return {name: times for name, sides in both.items() if (times := Times.of(*sides))}


def _unlike(new: Report, old: Report) -> tuple[str, ...]:
    """Returns what tells the machines of two reports apart, of the old one first; empty: nothing does. Machines that
    nobody knows are not alike."""
    both: list[dict[str, Any]] = [one.experiment_metadata or {} for one in (old, new)]
    if not all(about.get("machine") for about in both):
        return tuple(about["machine"].get("device", "?") if about.get("machine") else "no machine" for about in both)
    machines = [{**about["machine"], SANDBOX: about.get(SANDBOX)} for about in both]
    apart = [field for field in (*OF_A_KIND, SANDBOX) if machines[0].get(field) != machines[1].get(field)]
    return tuple(", ".join(f"{field} {machine.get(field)}" for field in apart) for machine in machines if apart)
