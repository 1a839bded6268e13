"""Figures with their intervals, one row each, on a logarithmic axis: times and speedups of one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentgen.records.trial import Speedup, Trial
from agentgen.report import figures
from agentgen.report.page.charts import WIDTH
from agentgen.report.page.scale import Scale, Tick, reach

_ROW, _FIRST = 34, 40
_EDGE = 10


@dataclass(frozen=True, slots=True)
class Figure:
    """What is drawn in a row."""

    text: str
    at: float
    low: float
    high: float
    style: str


@dataclass(frozen=True, slots=True)
class Span:
    """A row where it stands."""

    text: str
    y: int
    at: float
    low: float
    high: float
    style: str


@dataclass(frozen=True, slots=True)
class Spans:
    """A chart of rows."""

    title: str
    across: str
    ticks: Sequence[Tick]
    spans: Sequence[Span]
    mark: float | None
    """A line across all rows; None: there is nothing to compare with."""
    mark_text: str
    note: str
    height: int
    width: int = WIDTH


def charts(trial: Trial) -> list[Spans]:
    """Returns times beside the roofline, and speedups over baselines and at neighbouring shapes, as far as measured."""
    near = [_raced(one.speedup, one.workload) for one in trial.neighbours]
    found = [
        _times(trial),
        _speedups("Speedup over each baseline", [_raced(one, one.baseline) for one in trial.speedups]),
        _speedups("Over eager torch at neighbouring shapes", near),
    ]
    return [chart for chart in found if chart]


def _times(trial: Trial) -> Spans | None:
    timing = trial.timing
    if timing is None:
        return None
    own = f"this kernel {figures.time(timing.median_us)}"
    rows = [Figure(own, timing.median_us, timing.low_us, timing.high_us, "own")]
    rows += [
        Figure(f"{one.baseline} {figures.time(one.baseline_us)}", one.baseline_us, one.baseline_us, one.baseline_us, "")
        for one in trial.speedups
    ]
    share = trial.roofline_fraction
    bound = timing.median_us * share if share else None
    note = "Medians; of the kernel with the quartiles of its windows (those of the baselines are not stored)."
    if bound:
        note += (
            f" Roofline: {figures.percent(share)} of its time is the least that the device takes for it, as measured."
        )
        if share and share > 1:
            note += " Beyond 100%: fewer operations than the direct method."
    named = f"roofline bound {figures.time(bound)}"
    return _laid_out("Times, and the roofline", "µs, logarithmic", rows, bound, named, note)


def _raced(one: Speedup, name: str) -> Figure:
    style = "own" if one.faster else "slow" if one.high < 1 else ""
    return Figure(f"{name} {figures.speedup(one)}", one.ratio, one.low, one.high, style)


def _speedups(title: str, rows: Sequence[Figure]) -> Spans | None:
    note = "Medians of ratios of neighbouring windows, with their 95% intervals."
    return _laid_out(title, "speedup, logarithmic", rows, 1.0, "1×", note) if rows else None


def _laid_out(title: str, across: str, rows: Sequence[Figure], mark: float | None, mark_text: str, note: str) -> Spans:
    ends = [value for row in rows for value in (row.at, row.low, row.high) if value > 0]
    x = Scale(*reach([*ends, *([mark] if mark else [])], log=True), _EDGE, WIDTH - _EDGE, log=True)
    spans = [
        Span(row.text, _FIRST + _ROW * n, x.at(row.at), x.at(row.low), x.at(row.high), row.style)
        for n, row in enumerate(rows)
    ]
    height = _FIRST + _ROW * len(rows) + 30
    return Spans(title, across, x.ticks(), spans, x.at(mark) if mark else None, mark_text, note, height)
