"""How numbers and machines are written for people, one way in every report. Rounds for the eye; `--json` never does."""

from __future__ import annotations

from datetime import UTC, datetime

from agentgen.records.machine import Machine
from agentgen.records.trial import Speedup

NOT_MEASURED = "–"
_ROUNDS_UP = 0.99995
"""From this share of the next power of ten on, four digits show that power."""


def time(microseconds: float | None) -> str:
    """Returns four digits with the unit that suits: `812.4 µs`, `6.214 ms`, `1.203 s`."""
    if microseconds is None:
        return NOT_MEASURED
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size * _ROUNDS_UP:
            return f"{_four_digits(microseconds / size)} {unit}"
    return f"{_four_digits(microseconds)} µs"


def _four_digits(value: float) -> str:
    decimals = 3 if value < 10 * _ROUNDS_UP else 2 if value < 100 * _ROUNDS_UP else 1
    return f"{value:.{decimals}f}"


def clock(seconds: float) -> str:
    """Returns how long something goes on already: `12 s`, `3:05 min`, `1:02:03 h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} h"


def speedup(found: Speedup | None) -> str:
    """Returns `1.42× [1.38, 1.47]`, the 95% interval in brackets."""
    return NOT_MEASURED if found is None else f"{found.ratio:.2f}× [{found.low:.2f}, {found.high:.2f}]"


def day(when: datetime) -> str:
    """Returns `2026-11-22`: of UTC, in whatever zone it was written down."""
    return f"{when.astimezone(UTC):%Y-%m-%d}"


def minute(when: datetime) -> str:
    """Returns `2026-11-22 20:30 UTC`."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def percent(fraction: float | None) -> str:
    """Returns a share of the roofline."""
    return NOT_MEASURED if fraction is None else f"{100 * fraction:.0f}%"


def error(value: float | None) -> str:
    """Returns a relative error or another small number with three digits."""
    return NOT_MEASURED if value is None else f"{value:.2e}" if value else "0"


def machine(where: Machine) -> str:
    """Returns one line that tells which machine, with the versions that move a time."""
    parts = [where.device]
    if where.device_type == "cuda":
        parts += [f"compute capability {where.compute_capability}", f"driver {where.driver}", f"CUDA {where.cuda}"]
    else:
        parts.append(f"{where.cores} cores")
    parts.append(f"torch {where.torch}")
    if where.triton:
        parts.append(f"triton {where.triton}")
    return ", ".join([*parts, f"Python {where.python}"])
