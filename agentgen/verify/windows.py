"""What a session says of windows: the command for one, and what the judge's clock found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agentgen.verify.claims import Claim
from agentgen.verify.rig import Rig


@dataclass(frozen=True)
class Timed:
    """One window by the judge's clock."""

    seconds: float
    tail_s: float
    """From the mark until the guest's device was idle: what still ran then. 0 on a CPU."""
    claim: Claim
    samples: Mapping[str, int]
    """Where the guest's processor time went, by file; empty on a GPU."""


class Watcher(Protocol):
    """What the judge does round a timed window."""

    def before(self) -> None:
        """Rewrites inputs: when all is queued and a GPU's gate still spins, or a CPU's window is armed."""
        ...

    def after(self) -> None:
        """Looks at once at what is there when the clock stops."""
        ...


def model_of(workload: str, twin: bool) -> str:
    """Returns the name under which a guest keeps the model of a workload, or a second one like it."""
    return f"{workload}, twin" if twin else workload


def message_of(rig: Rig, calls: int, shot: int) -> dict[str, Any]:
    """Returns the command for a window of so many calls, with the sets that these come to; `shot` numbers a gated one,
    else 0."""
    return {
        "do": "window",
        "workload": rig.reference.workload,
        "region": rig.region.name,
        "inputs": rig.input_rows[:calls],
        "outputs": rig.output_rows[:calls],
        "layouts": rig.reference.output_strides,
        "calls": calls,
        "shot": shot,
        "record": False,
        "hold": False,
        "arm": False,
        "sample": False,
    }
