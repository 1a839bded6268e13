"""What looks over a candidate's shoulder in an instrumented guest: torch's dispatcher, CUPTI on a GPU, a sampler of
processor time on a CPU. The first two are never on in a guest that is timed; the sampler costs 2 us in 4 ms, and is."""

from __future__ import annotations

import functools
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from agentgen.sandbox.guest import coverage, kernels, sampler


@dataclass
class Seen:
    """Filled while a window runs."""

    dispatched: dict[str, int] = field(default_factory=dict)
    """Operator -> calls."""
    launches: list[kernels.Launch] | None = None
    """None: a CPU, or no CUPTI."""
    samples: dict[str, int] | None = None
    """Mapped file -> samples of processor time; None on a GPU."""

    def claims(self) -> dict[str, Any]:
        """Returns what is told to the judge."""
        return {
            "dispatched": self.dispatched,
            "samples": self.samples,
            "kernels": None if self.launches is None else _by_name(self.launches),
            "busy_us": None if self.launches is None else kernels.busy_us(self.launches),
        }


@contextmanager
def recording(record: bool, device: str) -> Generator[Seen | None]:
    """Yields what the instruments see while the block runs, complete when it has ended; None if not `record`."""
    if not record:
        yield None
        return
    with ExitStack() as stack:
        seen = Seen(stack.enter_context(coverage.recording(True)))
        if device == "cpu":
            seen.samples = stack.enter_context(sampler.sampling(True))
        elif recorder := _recorder():
            seen.launches = stack.enter_context(recorder.recording())
        yield seen


@functools.cache
def _recorder() -> kernels.Recorder | None:
    try:
        return kernels.Recorder()
    except OSError as error:
        print(f"agentgen: no record of kernels: {error}")  # noqa: T201  into the guest's log
        return None


def _by_name(launches: list[kernels.Launch]) -> list[dict[str, Any]]:
    found: dict[str, list[float]] = {}
    for launch in launches:
        found.setdefault(launch.name, []).append((launch.end_ns - launch.start_ns) / 1e3)
    return [{"name": name, "count": len(us), "us": sum(us)} for name, us in found.items()]
