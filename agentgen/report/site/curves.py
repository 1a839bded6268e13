"""fast_p of saved reports of `agentgen eval`: the share of problems whose kernel is right, honest and more than p times
as fast, over p.

A curve is drawn from the cases themselves: it steps wherever one falls behind. The table beside it counts at the usual
thresholds, with n, and with the exact 95% interval where there was one go at each case. One chart for each report: n,
machine and day are of that report, and nothing is compared across machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from agentgen.errors import BadInput
from agentgen.records.machine import Machine
from agentgen.report import figures
from agentgen.report.evaluation import share
from agentgen.report.page.charts import HEIGHT, WIDTH, Chart, Line
from agentgen.report.page.scale import Scale
from agentgen.scoring import batch
from agentgen.scoring.batch import Report
from agentgen.scoring.metrics import Go, fast_p
from agentgen.scoring.summaries import BASELINES, FAST_P, goes_of
from agentgen.store.entries import contents, fault

_THRESHOLDS: Final = (0.0, 1.0, 1.5, 2.0, 5.0)
_LOWEST: Final = 0.1
"""Left end of the axis: ten times slower."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, WIDTH - 14, 18, HEIGHT - 40
_STYLES: Final = ("best", "base")


@dataclass(frozen=True, slots=True)
class Saved:
    """A report, and the file that it was saved in."""

    name: str
    report: Report
    machine: Machine | None
    """None: its report does not tell."""


@dataclass(frozen=True, slots=True)
class Curves:
    """fast_p of one report."""

    chart: Chart
    about: str
    """Machine, day, models."""
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """By threshold."""


def read_all(folder: Path) -> tuple[tuple[Saved, ...], tuple[str, ...], tuple[str, ...]]:
    """Returns the reports in a folder that fast_p was asked of, a line for each other report, and one for each file
    that cannot be used."""
    found: list[Saved] = []
    others: list[str] = []
    broken: list[str] = []
    for file in sorted(folder.glob("*.json")):
        try:
            saved = _read(file)
        except BadInput as error:
            broken.append(str(error))
            continue
        if not any(analysis.title == FAST_P for analysis in saved.report.analyses):
            others.append(f"{file.name}: no fast_p: the dataset {saved.report.name} does not ask for it")
        elif not goes_of(saved.report, None):
            others.append(f"{file.name}: no fast_p: it has no cases")
        else:
            found.append(saved)
    return tuple(found), tuple(others), tuple(broken)


def curves(saved: Sequence[Saved]) -> tuple[Curves, ...]:
    """Returns the curves of some reports, all on one axis of p."""
    ratios = [go.speedup or 0.0 for one in saved for name in BASELINES.values() for go in goes_of(one.report, name)]
    x = Scale(_LOWEST, max([10.0, *ratios]) * 1.2, _LEFT, _RIGHT, log=True)
    return tuple(_curves(one, x) for one in saved)


def _read(file: Path) -> Saved:
    try:
        report = batch.parse(contents(file))
        told: Any = (report.experiment_metadata or {}).get("machine")
        machine = Machine.model_validate(told) if told else None
    except ValidationError as error:
        raise BadInput(f"{file} is no report of agentgen eval: {fault(error)}") from error
    return Saved(file.name, report, machine)


def _curves(saved: Saved, x: Scale) -> Curves:
    y = Scale(0.0, 1.0, _BOTTOM, _TOP)
    report = saved.report
    lines = [Line(f"M{x.at(1)} {_TOP}V{_BOTTOM}", "here")]
    raced = {name: goes_of(report, baseline) for name, baseline in BASELINES.items()}
    for n, (name, goes) in enumerate(raced.items()):
        style, top = _STYLES[n], _TOP + 12 + 16 * n
        words = f"over {name}, n = {len(goes)}"
        lines += [Line(f"M{_RIGHT - 190} {top - 4}h26", style, words, _RIGHT - 158, top)]
        lines += [Line(_steps(goes, x, y), style)]
    chart = Chart(
        f"{FAST_P} of {report.name}, {saved.name}",
        "p, logarithmic",
        "share",
        x.ticks(),
        y.ticks(),
        lines,
        (),
        left=_LEFT,
        right=int(_RIGHT),
        top=_TOP,
        bottom=_BOTTOM,
    )
    rows = [(_named(p), *(_counted(report, goes, p) for goes in raced.values())) for p in _THRESHOLDS]
    return Curves(chart, _about(saved), ("", *(f"over {name}" for name in raced)), tuple(rows))


def _named(p: float) -> str:
    return f"more than {p:g}×" if p else "right and honest"


def _steps(goes: Sequence[Go], x: Scale, y: Scale) -> str:
    """Returns the path: level up to each speedup, and down there, for p must be less."""
    ratios = sorted({go.speedup for go in goes if go.speedup is not None and go.speedup > x.low})
    path = f"M{x.at(x.low)} {y.at(fast_p(goes, x.low).share or 0.0)}"
    for ratio in ratios:
        path += f"H{x.at(ratio)}V{y.at(fast_p(goes, ratio).share or 0.0)}"
    return f"{path}H{x.at(x.high)}"


def _counted(report: Report, goes: Sequence[Go], p: float) -> str:
    rate = fast_p(goes, p)
    interval = (None, None) if report.case_groups() else rate.interval()
    return share(rate.count, rate.of, rate.share, *interval)


def _about(saved: Saved) -> str:
    about: dict[str, Any] = saved.report.experiment_metadata or {}
    models: Any = about.get("models") or []
    words = [
        figures.machine(saved.machine) if saved.machine else "machine not told",
        str(about.get("date") or "day not told"),
        *([f"answered by {', '.join(map(str, models))}"] if isinstance(models, list) and models else []),
    ]
    return " · ".join(words)
