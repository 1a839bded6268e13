"""How special is it? The same kernel at neighbouring shapes: right there too, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.trial import EAGER, Neighbour
from agentgen.sandbox.guest.memory import NoDeviceMemory
from agentgen.verify import reference as references
from agentgen.verify.baselines import Call, baselines
from agentgen.verify.checks.values import check_workload
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, NotGated, check
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session
from agentgen.verify.stopwatch import Stopwatch
from agentgen.verify.timing import Race, speedup

FAMILIES = (Family.NORMAL, Family.OUTLIERS)
"""The second has zeros, ordinary and large values at once: a path for other shapes may be wrong on any of them."""


@dataclass(frozen=True)
class Near:
    """What the judge holds for one neighbouring shape."""

    rig: Rig
    watch: Stopwatch
    raced: Mapping[str, Call]
    quiet_us: Mapping[str, float]


RaceAt = Callable[[Near, Findings], Race]
"""The judge's race of one guest at one neighbour."""


def build(
    problem: Problem, device: str, cache_bytes: int, arithmetic: Arithmetic, watch: Callable[[Rig], Stopwatch]
) -> tuple[list[Near], list[str]]:
    """Builds rigs for the problem's neighbouring shapes and times eager torch there, while no guest runs.

    Returns:
        What fits the device, and the names of what does not.
    """
    near: list[Near] = []
    without_room: list[str] = []
    for workload in problem.neighbours:
        rig: Rig | None = None
        try:
            rig = Rig(references.load(problem, workload, device, arithmetic), device, cache_bytes, rotate=True)
            rig.rehearse()
            rig.draw_inputs(Family.NORMAL)
            raced = {EAGER: baselines(rig.reference, arithmetic)[EAGER]}
            stopwatch = watch(rig)
            near.append(Near(rig, stopwatch, raced, stopwatch.quiet_us(raced)))
        except (torch.OutOfMemoryError, NoDeviceMemory):
            if rig:
                rig.close()
            without_room.append(workload.name)
    return near, without_room


@check("neighbouring shapes")
def neighbouring_shapes(
    session: Session,
    shapes: tuple[Sequence[Near], Sequence[str]],
    arithmetic: Arithmetic,
    race_at: RaceAt | None,
    accuracy_of: Findings,
    found: list[Neighbour],
) -> str | NotGated:
    """Catches kernels that are right at one shape only: at the problem's neighbouring shapes (half, double, one item,
    ragged) they must be right too. Those that are not behind torch are timed there as well, and the worst speedup is
    shown beside the best; being slow there is no fault.

    Does not catch: shapes that the problem does not name.
    """
    near, without_room = shapes
    if not near:
        return NotGated(_unfit(without_room) or "skipped: the problem names none")
    for one in near:
        name = one.rig.reference.workload
        # Lines of its own would hide those of `main`: only what fails, and the accuracy, is kept.
        local = Findings(accuracy=accuracy_of.accuracy)
        check_workload(session, one.rig, arithmetic, FAMILIES, local, normal_draws=1)
        if race_at:
            result = race_at(one, local)
            ratio = speedup(EAGER, [result], result.median_us)
            found.append(Neighbour(workload=name, median_us=result.median_us, speedup=ratio))
    names = ", ".join(one.rig.reference.workload for one in near)
    worst = min(found, key=lambda neighbour: neighbour.speedup.ratio, default=None)
    shown = f"; worst {worst.speedup.ratio:.2f} times eager torch at {worst.workload}" if worst else "; not timed"
    return f"right at {names}{shown}" + (f"; {_unfit(without_room)}" if without_room else "")


def _unfit(names: Sequence[str]) -> str:
    return f"skipped for want of memory: {', '.join(names)}" if names else ""
