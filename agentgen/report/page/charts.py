"""Roofline and best so far as places on the page; the templates draw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentgen.records.machine import Target
from agentgen.records.trial import Timing, Trial
from agentgen.report.page.costs import Spending
from agentgen.report.page.outcome import family
from agentgen.report.page.scale import Scale, Tick, reach
from agentgen.report.page.tree import candidate_key
from agentgen.report.solution import Solution
from agentgen.report.table import best

WIDTH, HEIGHT = 440, 300
"""Small, so that the letters can still be read where a telephone scales it down."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 40
_LETTERS = 12


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate in a chart."""

    key: str
    x: float
    y: float
    family: str
    is_best: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line with a name at its end."""

    path: str
    style: str
    name: str = ""
    x: float = 0.0
    y: float = 0.0
    end: bool = False
    """The name ends at x; else it starts there."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Axes, lines and points."""

    title: str
    across: str
    up: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    lines: Sequence[Line]
    points: Sequence[Point]
    note: str = ""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def roofline(solution: Solution) -> Chart | None:
    """Returns the roofline with the ceilings that were measured; None where nothing was timed."""
    target = solution.run.target
    timed = [(trial, trial.timing) for trial in solution.evaluated if trial.timing]
    if target is None or not timed:
        return None
    return _roofline(solution, target, timed) if target.flops else _bandwidth(solution, target, timed)


def _roofline(solution: Solution, target: Target, timed: Sequence[tuple[Trial, Timing]]) -> Chart:
    """Operations are those of the direct method, so a kernel that needs fewer may stand above the roof."""
    copy = target.ceilings.copy_bytes_per_s
    peaks = target.ceilings.matmul_flops_per_s
    own = target.ceilings.peak_flops_per_s(target.arithmetic)
    intensity = target.flops / target.bytes_moved
    rates = [target.flops / timing.median_us * 1e6 for _, timing in timed]
    based = {name: target.flops / us * 1e6 for name, us in target.baselines_us.items()}
    ridge = own / copy
    x = Scale(min(intensity, ridge) / 12, max(intensity, ridge) * 12, _LEFT, WIDTH - _RIGHT, log=True)
    lowest = min((*rates, *based.values(), min(own, copy * intensity) / 20))
    y = Scale(lowest / 2, max((*rates, *peaks.values(), own)) * 2, HEIGHT - _BOTTOM, _TOP, log=True)
    lines = [Line(f"M{x.at(intensity)} {_TOP}V{HEIGHT - _BOTTOM}", "here")]
    others = sorted((rate, arithmetic.value) for arithmetic, rate in peaks.items() if rate != own)
    for n, (rate, name) in enumerate(others):
        path = f"M{x.at(rate / copy)} {y.at(rate)}H{WIDTH - _RIGHT}"
        named = f"{name} {_flops(rate)}"
        close = n > 0 and y.at(others[n - 1][0]) - y.at(rate) < _LETTERS  # then it stands left of the other name
        end = WIDTH - _RIGHT - (130 if close else 0)
        lines.append(Line(path, "other", named, end, y.at(rate) - 4, end=True))
    first = max(x.low, y.low / copy)
    roof = f"M{x.at(first)} {y.at(copy * first)}L{x.at(ridge)} {y.at(own)}H{WIDTH - _RIGHT}"
    name = f"{target.arithmetic.value} {_flops(own)}, measured"
    lines.append(Line(roof, "roof", name, WIDTH - _RIGHT, y.at(own) - 4, end=True))
    for name, rate in based.items():
        here = x.at(intensity)
        lines.append(Line(f"M{here - 9} {y.at(rate)}h18", "base", name, here - 13, y.at(rate) + 4, end=True))
    points = _points(solution, timed, lambda n: (x.at(intensity), y.at(rates[n])))
    note = (
        f"Every kernel stands at the problem's own intensity, {intensity:.3g} FLOP/byte ({target.flops:.4g} operations "
        f"of the direct method, {target.bytes_moved:.4g} bytes). Slope: a copy at {copy / 1e9:.4g} GB/s. Both ceilings "
        "were measured on this device. Above the roof: fewer operations than the direct method."
    )
    return Chart("Roofline", "FLOP / byte", "FLOP/s", x.ticks(), y.ticks(), lines, points, note)


def _bandwidth(solution: Solution, target: Target, timed: Sequence[tuple[Trial, Timing]]) -> Chart:
    """Without operations to count a roofline has no second axis: bytes per second, kernel by kernel."""
    copy = target.ceilings.copy_bytes_per_s
    rates = [target.bytes_moved / timing.median_us * 1e6 for _, timing in timed]
    based = {name: target.bytes_moved / us * 1e6 for name, us in target.baselines_us.items()}
    y = Scale(*reach([copy, *rates, *based.values()]), HEIGHT - _BOTTOM, _TOP)
    x = Scale(0, len(timed) + 1, _LEFT, WIDTH - _RIGHT)
    roof = Line(
        f"M{_LEFT} {y.at(copy)}H{WIDTH - _RIGHT}",
        "roof",
        f"a copy, measured: {copy / 1e9:.4g} GB/s",
        WIDTH - _RIGHT,
        y.at(copy) - 5,
        end=True,
    )
    lines = [roof]
    for name, rate in based.items():
        path = f"M{_LEFT} {y.at(rate)}H{WIDTH - _RIGHT}"
        lines.append(Line(path, "base", name, _LEFT + 4, y.at(rate) - 5))
    points = _points(solution, timed, lambda n: (x.at(n + 1), y.at(rates[n])))
    note = (
        f"No operations are counted for this problem, so memory alone bounds it: {target.bytes_moved:.4g} bytes (each "
        "input read once, each output written once) over a kernel's time, against a measured copy."
    )
    return Chart("Roofline", "kernels as judged", "bytes/s", (), y.ticks(), lines, points, note)


def _points(
    solution: Solution, timed: Sequence[tuple[Trial, Timing]], place: Callable[[int], tuple[float, float]]
) -> list[Point]:
    top = best(solution.evaluated)
    return [
        Point(candidate_key(trial.candidate), *place(n), family(trial).name, trial is top)
        for n, (trial, _) in enumerate(timed)
    ]


def _flops(rate: float) -> str:
    return f"{rate / 1e12:.3g} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:.3g} GFLOP/s"


def progress(solution: Solution, spent: Mapping[str, Spending]) -> list[Chart]:
    """Returns the best speedup so far over evaluations, minutes of work, and dollars (else tokens), as far as they
    are stored."""
    ways: list[tuple[str, str, Callable[[Spending], float | None]]] = [
        ("evaluations", "kernels judged", lambda one: one.evaluations),
        ("minutes", "minutes of work, answers and judging", lambda one: one.minutes),
        ("dollars", "USD for the models' answers", lambda one: one.usd),
        ("tokens", "tokens of the models' answers", lambda one: one.tokens),
    ]
    found: list[Chart] = []
    for name, across, amount in ways:
        amounts = {key: amount(one) for key, one in spent.items()}
        known = {key: float(value) for key, value in amounts.items() if value is not None}
        if known and max(known.values()) > 0:
            found.append(_progress(solution, name, across, known))
    return found


def _progress(solution: Solution, name: str, across: str, spent: Mapping[str, float]) -> Chart:
    ratios = [trial.speedup.ratio for trial in solution.evaluated if trial.speedup]
    x = Scale(*reach(list(spent.values())), _LEFT, WIDTH - _RIGHT)
    y = Scale(*reach([1.0, *ratios]), HEIGHT - _BOTTOM, _TOP)
    reached, path = 0.0, f"M{x.at(0)} {y.at(0)}"
    points: list[Point] = []
    top = best(solution.evaluated)
    for trial in sorted(solution.evaluated, key=lambda trial: spent[trial.candidate]):
        ratio = trial.speedup.ratio if trial.speedup else 0.0
        across_at = x.at(spent[trial.candidate])
        key = candidate_key(trial.candidate)
        points.append(Point(key, across_at, y.at(ratio), family(trial).name, trial is top))
        if ratio > reached:
            reached = ratio
            path += f"H{across_at}V{y.at(ratio)}"
    lines = [
        Line(f"M{_LEFT} {y.at(1)}H{WIDTH - _RIGHT}", "base", "best baseline", WIDTH - _RIGHT, y.at(1) - 5, end=True),
        Line(f"{path}H{x.at(x.high)}", "best"),
    ]
    return Chart(f"Best so far over {name}", across, "speedup", x.ticks(), y.ticks(), lines, points)
