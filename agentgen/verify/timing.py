"""Is it fast? Windows of candidate and baselines in alternation, by the judge's clock, never both at once.

1. Every call finds cold inputs: windows rotate over more input sets than the last-level cache holds, and 4,096 values
   of each are rewritten before the window (on a GPU while the gate spins).
2. Each output is copied to the judge inside the window, on both sides of the ratio; the copy, measured by itself, is
   taken off both.
3. The speedup is the median over neighbouring windows of baseline/candidate, with a bootstrap interval. Identical
   kernels in different processes were seen to differ by up to 1% and 0.4 us a call, so "faster" needs more than that.
4. A candidate that is behind every baseline beyond doubt gets the fewest windows: how far behind is nobody's
   question, and stopping there can call nothing faster. A race whose ratios, with the copy in both times, are all known
   to a quarter of a per cent ends, too: it asks how wide the intervals are, not where they lie, and favours no verdict.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from agentgen.records.trial import Clock, Speedup, Timing, margin
from agentgen.verify.baselines import Call
from agentgen.verify.checks.audit import Audit
from agentgen.verify.checks.processor import Work, work
from agentgen.verify.draws import Family
from agentgen.verify.session import Session, Timed
from agentgen.verify.stats import median_interval, quartiles
from agentgen.verify.stopwatch import FEWEST_PAIRS, Stopwatch, net_us

COPY_EVERY = 3
BEHIND = 0.9
"""A race is lost where each baseline takes less of the candidate's time in so many pairs of windows that chance would
do that to one in 28: five of 5, seven of 8, eight of 9, nine of 11."""
ENOUGH_PAIRS = 9
"""From here on a race ends once its ratios are known well enough."""
WELL_KNOWN = 0.0025
"""Half the width of a ratio's interval, relative to it: a quarter of what "faster" needs."""
STRANGE = (
    *(Family.UNIFORM, Family.SHIFTED, Family.LARGE, Family.ROWS, Family.SPARSE, Family.SORTED),
    *(Family.OUTLIERS, Family.APART, Family.APART_TOO),
)
SHORT_US = 10.0
"""Below this a process's own constant (0.3 us) shows: three fresh guests are measured."""


@dataclass(frozen=True)
class Race:
    """The windows of one guest against all baselines, each already in microseconds a call, copy taken off."""

    calls: int
    candidate_us: tuple[float, ...]
    guest_clock_us: tuple[float, ...]
    baselines_us: Mapping[str, tuple[float, ...]]
    copy_us: float
    windows: tuple[Timed, ...]
    """The candidate's, as they were measured."""
    copying_s: float
    """Of processor time that copying a set of outputs takes at the least, on a CPU."""
    work: Work | None = None
    """Of all the candidate's windows, on a CPU whose kernel gives samples."""

    @property
    def median_us(self) -> float:
        """Of a call of the candidate."""
        return median(self.candidate_us)

    @property
    def lost(self) -> bool:
        """Whether the candidate was behind every baseline beyond doubt."""
        return behind(self.candidate_us, self.baselines_us)


def behind(candidate_us: Sequence[float], baselines_us: Mapping[str, Sequence[float]]) -> bool:
    """Whether pairs of windows show a candidate behind each baseline beyond doubt."""
    allowed = (len(candidate_us) - FEWEST_PAIRS) // 3
    return all(
        sum(b >= BEHIND * c for b, c in zip(raced, candidate_us, strict=True)) <= allowed
        for raced in baselines_us.values()
    )


def median_ratio(race: Race, baseline: str) -> float:
    """Returns the median over pairs of windows of baseline over candidate."""
    return median(b / c for b, c in zip(race.baselines_us[baseline], race.candidate_us, strict=True))


def race(
    watch: Stopwatch,
    session: Session,
    baselines: Mapping[str, Call],
    expected_us: Mapping[str, float],
    call_us: float,
    audit: Audit,
    strange: bool = False,
) -> Race:
    """Runs the alternating windows. Each side's are of its own number of calls, so that a window of the faster side is
    no shorter: of one call of 20 us the gate's own 4 us would be a fifth.

    Args:
        watch: The judge's stopwatch on the timed rig.
        session: A guest that is warm there.
        baselines: By name, and `expected_us` of a call of each.
        call_us: Time of a call of the candidate.
        audit: Rewrites the inputs of each of the candidate's windows, and looks at outputs.
        strange: Whether the candidate makes windows more, on inputs of other value families; nobody's time.

    Raises:
        Rejected: what the audit finds.
    """
    calls = watch.calls(call_us)
    lengths = {name: watch.calls(expected_us[name]) for name in baselines}
    pair_us = sum(lengths[name] * expected_us[name] for name in baselines) + calls * call_us
    odd = _strange_windows(min(calls, watch.rig.sets)) if strange else {}
    course = _Course(watch, session, audit, calls, {name: (call, lengths[name]) for name, call in baselines.items()})
    course.copy()
    for pair in range(watch.schedule.pairs_of(pair_us)):
        course.candidate(odd.get(pair, ()))
        course.baselines()
        # Spread over the race: taken once, the copy of 3.8 GB came out 12% too long, and a baseline faster than memory
        # is.
        if pair % COPY_EVERY == 0:
            course.copy()
        if course.is_over():
            break
    return course.end()


class _Course:
    """A race that goes on: the windows so far, by the clock. On a CPU the guest sleeps while others have theirs."""

    def __init__(
        self, watch: Stopwatch, session: Session, audit: Audit, calls: int, baselines: Mapping[str, tuple[Call, int]]
    ) -> None:
        """`calls`: of the candidate's windows; each baseline comes with those of its own."""
        self._watch = watch
        self._session = session
        self._audit = audit
        self._on_cpu = session.page is None
        self._calls = calls
        self._baselines = baselines
        self._bare = watch.bare_copy()
        self._windows: list[Timed] = []
        self._raced: dict[str, list[float]] = {name: [] for name in baselines}
        self._copies: list[float] = []
        self._copying: list[float] = []

    def candidate(self, odd: Sequence[tuple[Family, ...]]) -> None:
        """Runs the candidate's window, after those that are nobody's time: of these families."""
        rig = self._watch.rig
        if self._on_cpu:
            self._session.wake()
        for families in odd:
            self._audit.strange = families
            self._session.timed(rig, self._calls, self._audit)
            self._audit.judge()
        self._windows.append(self._session.timed(rig, self._calls, self._audit))
        if self._on_cpu:
            self._session.guest.pause()  # a CPU guest cannot slow the baseline's windows
        self._audit.judge()

    def baselines(self) -> None:
        """Runs a window of each."""
        # Whatever a guest did to the pages, they are there before a baseline, or the bare copy, writes to them.
        most, sets = max(self._calls, *(calls for _, calls in self._baselines.values())), self._watch.rig.sets
        # A slow baseline's window comes to few sets, and nobody knows to which: the candidate's are compared with them.
        first = secrets.randbelow(sets) if self._on_cpu else 0
        self._watch.rig.poison_outputs({k % sets for k in (*range(self._calls), *range(first, first + most))})
        for place, (name, (call, calls)) in enumerate(self._baselines.items()):
            self._raced[name].append(1e6 * self._watch.seconds(call, calls, first) / calls)
            if self._on_cpu and place == 0:
                self._audit.compare({k % sets for k in range(first, first + calls)})

    def copy(self) -> None:
        """Runs a window of the bare copy."""
        self._copies.append(self._watch.seconds(self._bare, self._calls))
        if self._on_cpu:
            self._copying.append(self._watch.copying_s(self._calls))

    def is_over(self) -> bool:
        """Whether more pairs of windows would be nobody's gain."""
        # The copy is in both times here, and makes their ratio no smaller.
        return _over([1e6 * window.seconds / self._calls for window in self._windows], self._raced)

    def end(self) -> Race:
        """Lets the guest go on, and takes the copy off all times."""
        if self._on_cpu:
            self._session.wake()
        calls, copy_us = self._calls, 1e6 * median(self._copies) / self._calls
        sampled = self._on_cpu and self._session.sampled_by_kernel
        return Race(
            calls,
            tuple(net_us(1e6 * window.seconds / calls, copy_us) for window in self._windows),
            tuple(net_us(1e6 * (window.claim.seconds or 0.0) / calls, copy_us) for window in self._windows),
            {name: tuple(net_us(x, copy_us) for x in samples) for name, samples in self._raced.items()},
            copy_us,
            tuple(self._windows),
            min(self._copying, default=0.0),
            sum((work(window.samples, calls) for window in self._windows), Work()) if sampled else None,
        )


def _over(candidate_us: Sequence[float], baselines_us: Mapping[str, Sequence[float]]) -> bool:
    pairs = len(candidate_us)
    if pairs >= FEWEST_PAIRS and behind(candidate_us, baselines_us):
        return True
    return pairs >= ENOUGH_PAIRS and all(_well_known(candidate_us, raced) for raced in baselines_us.values())


def _well_known(candidate_us: Sequence[float], baseline_us: Sequence[float]) -> bool:
    ratio, low, high = median_interval([b / c for b, c in zip(baseline_us, candidate_us, strict=True)])
    return high - low <= 2 * WELL_KNOWN * ratio


def _strange_windows(calls: int) -> dict[int, list[tuple[Family, ...]]]:
    """Returns before which pairs windows are made that are nobody's time, and of which families their first calls are:
    of all, in whatever race."""
    families = list(STRANGE)
    random = secrets.SystemRandom()
    random.shuffle(families)
    windows: dict[int, list[tuple[Family, ...]]] = {}
    for first in range(0, len(families), calls):
        windows.setdefault(random.randrange(FEWEST_PAIRS), []).append(tuple(families[first : first + calls]))
    return windows


def summarise(races: list[Race], clock: Clock) -> tuple[Timing, tuple[Speedup, ...]]:
    """Pools the races of one or more guests. The caller has checked that every time is above the byte floor."""
    samples = [x for one in races for x in one.candidate_us]
    low, middle, high = quartiles(samples)
    _, guest_median, _ = quartiles([x for one in races for x in one.guest_clock_us])
    timing = Timing(
        clock=clock,
        median_us=middle,
        low_us=low,
        high_us=high,
        calls_per_window=races[0].calls,
        windows=len(samples),
        guests=len(races),
        copy_us=races[0].copy_us,
        guest_clock_us=guest_median,
    )
    speedups = [speedup(name, races, middle) for name in races[0].baselines_us]
    return timing, tuple(sorted(speedups, key=lambda s: s.baseline_us))


def speedup(name: str, races: list[Race], candidate_us: float) -> Speedup:
    """Returns the ratio to one baseline with its interval, and whether it is faster beyond doubt."""
    per_guest = [[b / c for b, c in zip(one.baselines_us[name], one.candidate_us, strict=True)] for one in races]
    ratio, low, high = median_interval([x for ratios in per_guest for x in ratios])
    if len(per_guest) > 1:  # the spread between guests is real, and wider than the windows' own
        medians = [median_interval(ratios)[0] for ratios in per_guest]
        low, high = min(low, *medians), max(high, *medians)
    _, baseline_us, _ = quartiles([x for one in races for x in one.baselines_us[name]])
    faster = low > 1 + margin(candidate_us)
    return Speedup(baseline=name, baseline_us=baseline_us, ratio=ratio, low=low, high=high, faster=faster)
