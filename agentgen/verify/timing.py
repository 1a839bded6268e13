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

import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from agentgen.records.trial import Clock, Speedup, Timing, margin
from agentgen.sandbox.guest.memory import reset_persisting_cache
from agentgen.sandbox.guest.window import copy_bytes, run_window
from agentgen.verify.baselines import Call
from agentgen.verify.checks.audit import Audit
from agentgen.verify.clock import OwnGate
from agentgen.verify.draws import Family
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session, Timed
from agentgen.verify.stats import median_interval, quartiles

COPY_EVERY = 3
FEWEST_PAIRS = 5
BEHIND = 0.9
"""A race is lost where each baseline takes less of the candidate's time in so many pairs of windows that chance would
do that to one in 28: five of 5, seven of 8, nine of 11."""
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
class Schedule:
    """How long and how often."""

    window_s: float
    pairs: int
    max_calls: int
    race_s: float
    """A slow candidate gets fewer pairs, but `FEWEST_PAIRS`: its interval is wide and its verdict clear."""

    def calls(self, call_us: float) -> int:
        """Returns the calls of a window for a kernel of that time."""
        return max(1, min(self.max_calls, math.ceil(1e6 * self.window_s / max(call_us, 0.1))))

    def pairs_of(self, pair_us: float) -> int:
        """Returns how many pairs of windows of that time to run."""
        return max(FEWEST_PAIRS, min(self.pairs, int(1e6 * self.race_s / pair_us)))


GPU = Schedule(window_s=6e-3, pairs=21, max_calls=200, race_s=1.0)
"""The gate is right to 0.2% in 4 ms; 200 calls of up to 4 launches stay under the queue's 1,000."""
CPU = Schedule(window_s=60e-3, pairs=11, max_calls=20_000, race_s=3.0)
"""A command and its answer take 0.5-1 ms, 2% of 60 ms; a call from Python takes 3 us and more."""
NEAR_GPU = replace(GPU, window_s=3e-3, pairs=5, race_s=0.3)
NEAR_CPU = replace(CPU, window_s=20e-3, pairs=5, race_s=1.0)
"""For neighbouring shapes: how special a kernel is shows in halves and doubles, not in per cents."""


class Stopwatch:
    """Times windows that run in this process: the baselines and the bare copy."""

    def __init__(self, rig: Rig, own: OwnGate | None, *, near: bool = False) -> None:
        """Takes the rig to time at, the judge's own gate on a GPU, and whether it is a neighbour."""
        self.rig = rig
        self.schedule = (NEAR_GPU if near else GPU) if own else (NEAR_CPU if near else CPU)
        self._own = own

    def warm(self, call: Call) -> None:
        """Has `call` compile and autotune; not behind a gate, where whatever waits for the device would wait for it.
        Three calls, because CUDA graphs are recorded at the second."""
        run_window(call, self.rig.private, self.rig.outputs, 3, keep=copy_bytes)()

    def seconds(self, call: Call, calls: int) -> float:
        """Returns the time of one window of `call` over the rig's sets, output copies included."""

        # The judge's own copies: a guest can write to what it shares (denormals would slow a baseline).
        inputs, outputs = self.rig.private, self.rig.outputs
        if self._own is None:
            start = time.perf_counter()
            run_window(call, inputs, outputs, calls, keep=copy_bytes)
            return time.perf_counter() - start
        reset_persisting_cache()  # what a guest had the cache hold on to is not to be missing here
        return self._own.seconds(lambda shot: run_window(call, inputs, outputs, calls, shot, copy_bytes))

    def bare_copy(self) -> Call:
        """Returns a call that computes nothing: what its window takes is the copying of one set of outputs, n times."""
        ready = [y.clone() for y in self.rig.outputs[0]]
        return lambda *_: ready

    def copy_us(self, calls: int) -> float:
        """Returns the median time of copying one set of outputs, as every window does."""
        copy = self.bare_copy()
        return 1e6 * median([self.seconds(copy, calls) for _ in range(5)]) / calls

    def quiet_us(self, baselines: Mapping[str, Call]) -> dict[str, float]:
        """Returns each baseline's median, before any guest exists: nobody can have slowed it."""
        times: dict[str, float] = {}
        for name, call in baselines.items():
            self.warm(call)
            calls = self.schedule.calls(1e6 * self.seconds(call, 2) / 2)
            copy_us = self.copy_us(calls)
            samples = [net_us(1e6 * self.seconds(call, calls) / calls, copy_us) for _ in range(7)]
            times[name] = sorted(samples)[3]
        return times


def net_us(gross_us: float, copy_us: float) -> float:
    """Returns a call's time without the copy; noise in the copy of a tiny kernel must not make it zero or less."""
    return max(gross_us - copy_us, 0.01 * gross_us)


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
    on_cpu, calls = session.page is None, watch.schedule.calls(call_us)
    lengths = {name: watch.schedule.calls(expected_us[name]) for name in baselines}
    pair_us = sum(lengths[name] * expected_us[name] for name in baselines) + calls * call_us
    copy = watch.bare_copy()
    # Spread over the race: taken once, the copy of 3.8 GB came out 12% too long, and a baseline faster than memory is.
    copies = [watch.seconds(copy, calls)]
    windows: list[Timed] = []
    raced: dict[str, list[float]] = {name: [] for name in baselines}
    pairs = watch.schedule.pairs_of(pair_us)
    odd = _strange_windows(min(calls, watch.rig.sets)) if strange else {}
    for pair in range(pairs):
        if on_cpu:
            session.wake()
        for families in odd.get(pair, ()):
            audit.strange = families
            session.timed(watch.rig, calls, audit)
            audit.judge()
        windows.append(session.timed(watch.rig, calls, audit))
        if on_cpu:
            session.guest.pause()  # a CPU guest cannot slow the baseline's windows
        audit.judge()
        # Whatever a guest did to the pages, they are there before a baseline, or the bare copy, writes to them.
        watch.rig.poison_outputs(range(min(watch.rig.sets, max(calls, *lengths.values()))))
        for name, call in baselines.items():
            raced[name].append(1e6 * watch.seconds(call, lengths[name]) / lengths[name])
        if pair % COPY_EVERY == 0:
            copies.append(watch.seconds(copy, calls))
        # The copy is in both times here, and makes their ratio no smaller.
        if _over([1e6 * window.seconds / calls for window in windows], raced):
            break
    if on_cpu:
        session.wake()
    copy_us = 1e6 * median(copies) / calls
    return Race(
        calls,
        tuple(net_us(1e6 * window.seconds / calls, copy_us) for window in windows),
        tuple(net_us(1e6 * (window.claim.seconds or 0.0) / calls, copy_us) for window in windows),
        {name: tuple(net_us(x, copy_us) for x in samples) for name, samples in raced.items()},
        copy_us,
        tuple(windows),
    )


def _over(candidate_us: Sequence[float], baselines_us: Mapping[str, Sequence[float]]) -> bool:
    """Whether more pairs of windows would be nobody's gain."""
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
