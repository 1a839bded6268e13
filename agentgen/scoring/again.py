"""Is an entry of the leaderboard still what its certificate says?

The rules are those of the gate between two reports (`scoring.gate`): times are compared between machines of one kind
with the same torch and triton, beyond what goes at one kernel differ; a kernel that looks slower is judged again, and
those goes have to say so by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from agentgen.records.entry import Entry, Finding, Reverified
from agentgen.records.machine import Machine
from agentgen.records.trial import Trial, margin
from agentgen.scoring.gate import ALARM, OF_A_KIND, SUSPICION
from agentgen.scoring.goes import LONGEST
from agentgen.scoring.times import Times

MORE_GOES: Final = 2
"""Further certificates of a kernel whose first one looks slower."""
VERSIONS: Final = frozenset({"torch", "triton"})
"""Of what makes a kind of machine, that which an update changes. A kernel has to stay right under it."""
SAID: Final = ("driver", "cuda", "python")
"""What does not part machines, so that it is found where a driver slows a kernel, but is said."""


def suspect(entry: Entry, trial: Trial) -> bool:
    """Returns whether a first go looks slower, so that more are to tell.

    Not only by chance: a certificate whose interval somebody has made wide upwards would explain any time by it. It is
    ranked by the lower end, and that the new interval has to reach.
    """
    times = _times(entry, (trial,))
    if times is None or apart(entry.trial.machine, trial.machine):
        return False
    (then,), (now,) = times.old, times.new
    return times.slower() < SUSPICION or now.high * (1 + margin(times.call_us)) < then.low


def found(entry: Entry, trials: Sequence[Trial], workload: str, date: datetime) -> Reverified:
    """Returns what it came to.

    Args:
        entry: of the leaderboard.
        trials: new certificates of its kernel, all from one machine; the first, and those that it was suspect for.
        workload: that was timed in them; a certificate of the leaderboard is for `main`.
        date: of now.
    """
    last = trials[-1]
    finding, words = _judged(entry, trials, workload)
    other = _named(entry.trial.machine, last.machine, SAID)
    return Reverified(
        date=date,
        finding=finding,
        words=f"{words}; {other}" if other else words,
        machine=last.machine,
        goes=len(trials),
        median_us=last.timing.median_us if last.timing else None,
        speedup=last.speedup,
    )


def apart(then: Machine, now: Machine) -> tuple[str, ...]:
    """Returns what tells the kinds of two machines apart; empty: their times can be compared."""
    return tuple(field for field in OF_A_KIND if getattr(then, field) != getattr(now, field))


def _judged(entry: Entry, trials: Sequence[Trial], workload: str) -> tuple[Finding, str]:
    then, now = entry.trial.machine, trials[-1].machine
    parted = apart(then, now)
    refused = next((trial for trial in trials if not trial.accepted), None)
    said = f"{refused.outcome.value}: {' '.join(refused.reasons[0].split())[:LONGEST]}" if refused else "accepted"
    if parted and (not refused or not VERSIONS.issuperset(parted)):
        return Finding.ELSEWHERE, f"{_named(then, now, parted)}: times are not compared; {said} here"
    if refused:
        changed = f" under {_named(then, now, parted)}" if parted else ""
        return Finding.WRONG, f"{said}{changed}"
    if workload != entry.problem.main.name:
        return Finding.UNTIMED, f"accepted, but timed at {workload}: for main there is too little memory"
    if unraced := _unraced(entry, trials):
        return Finding.UNTIMED, f"accepted, but the certificate has no race with {unraced}, the fastest baseline here"
    times = _times(entry, trials)
    if times is None:
        return Finding.UNTIMED, "accepted, but there is no time over a baseline that the certificate raced as well"
    ours, theirs = times.said()
    words = f"over {times.baseline} {ours} then, {theirs} now"
    if times.slower() < ALARM and (len(trials) == 1 or _slower(entry, trials[1:]) < SUSPICION):
        return Finding.SLOWER, f"by {100 * times.change:.1f}%: {words}"
    if times.faster() < ALARM:
        return Finding.FASTER, words
    return Finding.SAME, words


def _unraced(entry: Entry, trials: Sequence[Trial]) -> str | None:
    """Returns a best baseline that the certificate does not know: a speedup over a slower one, as which the entry would
    be shown, is not the one over the best."""
    raced = {race.baseline for race in entry.trial.speedups}
    return next((go.speedup.baseline for go in trials if go.speedup and go.speedup.baseline not in raced), None)


def _slower(entry: Entry, trials: Sequence[Trial]) -> float:
    """Returns how often goes at one kernel differ as much as these; 1 where there is nothing to compare."""
    times = _times(entry, trials)
    return times.slower() if times else 1.0


def _times(entry: Entry, trials: Sequence[Trial]) -> Times | None:
    assert entry.trial.timing  # a certificate has one
    races = [{race.baseline: race for race in trial.speedups} for trial in trials]
    for race in entry.trial.speedups:
        if all(race.baseline in go for go in races):
            new = tuple(go[race.baseline] for go in races)
            return Times(race.baseline, (race,), new, entry.trial.timing.median_us)
    return None


def _named(then: Machine, now: Machine, fields: Sequence[str]) -> str:
    pairs = ((field, getattr(then, field), getattr(now, field)) for field in fields)
    return ", ".join(f"{field} {was} then and {here} now" for field, was, here in pairs if was != here)
