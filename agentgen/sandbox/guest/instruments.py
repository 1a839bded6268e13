"""What looks over a candidate's shoulder in an instrumented guest: torch's dispatcher, CUPTI on a GPU, a sampler of
processor time on a CPU where the kernel gives no samples. The first two are never on in a guest that is timed."""

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
    returned: dict[str, int] = field(default_factory=dict)
    """Operator -> bytes that it returned."""
    launches: list[kernels.Launch] | None = None
    """None: a CPU, or no CUPTI."""
    samples: dict[str, int] | None = None
    """Mapped file -> samples of processor time; None on a GPU."""

    def claims(self) -> dict[str, Any]:
        """Returns what is told to the judge."""
        return {
            "dispatched": self.dispatched,
            "returned": self.returned,
            "samples": self.samples,
            "kernels": None if self.launches is None else _by_name(self.launches),
            "busy_us": None if self.launches is None else kernels.busy_us(self.launches),
        }


@contextmanager
def recording(record: bool, device: str, sample: bool = False) -> Generator[Seen | None]:
    """Yields what the instruments see while the block runs, complete when it has ended; None if not `record`.

    Args:
        record: Whether to look at all.
        device: `cpu` or `cuda:N`.
        sample: Whether processor time is sampled from here, because the kernel does not do it.
    """
    if not record:
        yield None
        return
    with ExitStack() as stack:
        seen = Seen(*stack.enter_context(coverage.recording(True)))
        if device == "cpu":
            seen.samples = stack.enter_context(sampler.sampling(sample))
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
    found: dict[str, list[kernels.Launch]] = {}
    for launch in launches:
        found.setdefault(launch.name, []).append(launch)
    return [_summed(name, runs) for name, runs in found.items()]


def _summed(name: str, runs: list[kernels.Launch]) -> dict[str, Any]:
    longest = max(runs, key=lambda run: run.ns)
    figures = ("registers", "blocks", "threads", "shared_bytes", "local_bytes")
    shape = {figure: getattr(longest, figure) for figure in figures}
    return {"name": name, "count": len(runs), "us": sum(run.ns for run in runs) / 1e3, **shape}
