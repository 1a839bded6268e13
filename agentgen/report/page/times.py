"""Times of kernels beside those of what they raced, as places on the page.

Each kernel was timed in alternation with the baselines, so its row has the baselines' times of those minutes: on a
machine that is now fast and now slow, medians of two kernels cannot be compared, and speedups can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentgen.records.trial import Timing, Trial
from agentgen.report import figures
from agentgen.report.page.charts import WIDTH
from agentgen.report.page.outcome import family
from agentgen.report.page.scale import Scale, Tick, reach
from agentgen.report.page.tree import candidate_key
from agentgen.report.solution import Solution
from agentgen.report.table import best

_SHOWN = 24
_ROW, _FIRST = 32, 40


@dataclass(frozen=True, slots=True)
class Bar:
    """One kernel's time: quartiles and median, and the medians of the baselines beside it."""

    key: str
    y: int
    text: str
    language: str
    low: float
    high: float
    median: float
    baselines: Sequence[float]
    family: str
    is_best: bool


@dataclass(frozen=True, slots=True)
class Times:
    """The times of the kernels with the highest speedups."""

    bars: Sequence[Bar]
    bound: float | None
    bound_text: str
    ticks: Sequence[Tick]
    left_out: int
    height: int
    width: int = WIDTH


def times(solution: Solution) -> Times | None:
    """Returns medians and quartiles of the kernels, in the order in which they rank; None where nothing was timed."""
    timed = [(trial.timing, trial) for trial in solution.evaluated if trial.timing]
    if not timed:
        return None
    timed.sort(key=lambda pair: -(pair[1].speedup.low if pair[1].speedup else 0.0))
    shown = timed[:_SHOWN]
    target, top = solution.run.target, best(solution.evaluated)
    ends = [us for timing, trial in shown for us in (timing.low_us, timing.high_us, *_raced(trial))]
    x = Scale(*reach([*ends, *([target.bound_us] if target else [])], log=True), 8, WIDTH - 8, log=True)
    languages = {candidate.id: candidate.language.value for candidate in solution.candidates}
    bars = [
        _bar(n, x, timing, trial, languages[trial.candidate], trial is top) for n, (timing, trial) in enumerate(shown)
    ]
    return Times(
        bars,
        x.at(target.bound_us) if target else None,
        f"roofline bound {figures.time(target.bound_us)}" if target else "",
        x.ticks(),
        len(timed) - len(shown),
        _FIRST + _ROW * len(shown) + 30,
    )


def _bar(n: int, x: Scale, timing: Timing, trial: Trial, language: str, is_best: bool) -> Bar:
    return Bar(
        candidate_key(trial.candidate),
        _FIRST + _ROW * n,
        f"{figures.time(timing.median_us)} · {figures.speedup(trial.speedup)}",
        language,
        x.at(timing.low_us),
        x.at(timing.high_us),
        x.at(timing.median_us),
        [x.at(us) for us in _raced(trial)],
        family(trial).name,
        is_best,
    )


def _raced(trial: Trial) -> list[float]:
    return [one.baseline_us for one in trial.speedups]
