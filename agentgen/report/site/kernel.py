"""What the page of one certified kernel says: all that its entry holds."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from markupsafe import Markup

from agentgen.records.candidate import SHORT_ID
from agentgen.records.entry import Entry, Finding, Reverified
from agentgen.records.machine import Machine
from agentgen.report import figures
from agentgen.report.page import detail, story
from agentgen.report.page.frame import Frame, safe_json
from agentgen.report.site import spans
from agentgen.report.standings import Board, Place
from agentgen.store.entries import Kept

_WORDS = {True: ("ok", "ok"), False: ("FAILED", "bad"), None: ("–", "none")}
_GOOD = (Finding.SAME, Finding.FASTER)


@dataclass(frozen=True, slots=True)
class Again:
    """One time that the kernel was judged again, in words."""

    day: str
    finding: str
    style: str
    words: str
    speedup: str
    goes: int
    machine: str


def page(frame: Frame, board: Board, place: Place, source_file: str) -> str:
    """Returns the page of a kernel.

    Args:
        frame: of the site's pages.
        board: that it is on.
        place: there.
        source_file: beside the page, to be kept by whoever wants the kernel.
    """
    entry, trial = place.entry, place.entry.trial
    return frame.render(
        "kernel.html.j2",
        entry=entry,
        short=entry.id[:SHORT_ID],
        rank=f"{place.rank}{'=' if place.tied else ''} of {len(board.places)}",
        machine=figures.machine(trial.machine),
        tiles=_tiles(entry, place.kept),
        chain=story.told(entry.chain, {}),
        certified=figures.speedup(trial.speedup),
        charts=spans.charts(trial),
        tables=detail.tables(trial),
        checks=[(one.name, *_WORDS[one.passed], one.evidence) for one in trial.checks],
        again=[_again(one) for one in place.kept.again],
        command=_command(place.kept),
        environment=_environment(trial.machine),
        provenance=_provenance(entry),
        source_file=source_file,
        data=_sources(entry, source_file),
    )


def _tiles(entry: Entry, kept: Kept) -> list[tuple[str, str, str]]:
    """Returns name, figure and small print of what one wants to know first."""
    trial = entry.trial
    found = detail.tiles(trial, "median", "bound / measured")
    reached = trial.accuracy_class.value if trial.accuracy_class else "none"
    found.append(("accuracy class", reached, f"asked for: {trial.arithmetic.value}"))
    last = kept.again[-1] if kept.again else None
    again = ("reverified", last.finding.value, f"on {last.date:%Y-%m-%d}") if last else None
    return [*found, again or ("reverified", figures.NOT_MEASURED, "not yet")]


def _again(one: Reverified) -> Again:
    return Again(
        f"{one.date:%Y-%m-%d}",
        one.finding.value,
        "ok" if one.finding in _GOOD else "bad",
        one.words,
        figures.speedup(one.speedup),
        one.goes,
        figures.machine(one.machine),
    )


def _command(kept: Kept) -> str:
    """Returns what judges it again, seen from the folder that holds the results."""
    return f"agentgen reverify {shlex.quote(f'results/kernels/{kept.entry.place}')}"


def _environment(machine: Machine) -> list[tuple[str, str]]:
    sizes = {"memory_bytes": "memory", "last_level_cache_bytes": "last-level cache"}
    found: list[tuple[str, str]] = []
    for name, value in machine.model_dump(mode="json").items():
        if value is not None:
            shown = f"{value / 2**20:,.0f} MiB" if name in sizes else str(value)
            found.append((sizes.get(name, name.replace("_", " ")), shown))
    return found


def _provenance(entry: Entry) -> list[tuple[str, str]]:
    origin, last = entry.origin, entry.chain[-1]
    code = f"{origin.agentgen}, commit {origin.commit or 'not known'}"
    found = [
        ("kernel", entry.id),
        ("written by", origin.model),
        ("idea by", last.idea_by or "not told"),
        ("run", f"{origin.run}, begun {origin.begun:%Y-%m-%d %H:%M}"),
        ("searched on", figures.machine(origin.machine) if origin.machine else "not known"),
        ("certified", f"{origin.certified:%Y-%m-%d %H:%M}"),
        ("by agentgen", f"{code}, with changes" if origin.changed else code),
    ]
    if entry.trial.timing:
        timing = entry.trial.timing
        windows = f"{timing.windows} windows of {timing.calls_per_window} cold calls, {timing.guests} guests"
        found.append(("timed in", f"{windows}, {timing.clock.value} clock"))
    return found


def _sources(entry: Entry, file: str) -> Markup:
    """Returns what the page's script lays out. A source that is cut has no name to be saved under."""
    source = entry.candidate.source
    told = {
        "kernel": detail.shown_source(source),
        "reference": detail.shown_source(entry.problem.reference),
        "file": file if len(source) <= detail.LONGEST_SOURCE else None,
    }
    return safe_json(json.dumps(told))
