"""Looks at some elements of every output of a CPU's timed windows, beside what torch's own window leaves there."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch

from agentgen.records.trial import Outcome
from agentgen.verify.findings import Findings, Rejected, check
from agentgen.verify.rig import Rig

PLACES = 64
"""Of an output."""
FAR = 0.1
"""Of the outputs' own size: torch in the same arithmetic is nearer than 0.01; the answer to other inputs is at 1.4. Of
whole numbers, the part that differs."""


class Spots:
    """Of one rig. An oracle takes as long as a window, so that `Audit` looks at one output of four windows; torch's own
    outputs are there after each, since its window is raced on the same inputs."""

    def __init__(self, rig: Rig, findings: Findings) -> None:
        """Looks at a rig's outputs."""
        self._rig = rig
        self._findings = findings
        self._taken: list[tuple[int, torch.Tensor, list[torch.Tensor]]] = []
        """Of each output its place, places in it, and the values there of each set."""
        self._looked = 0
        self._worst = 0.0

    def take(self, used: int) -> None:
        """Keeps values of the first `used` sets, at places that are drawn now."""
        self._taken = []
        for i, y in enumerate(self._rig.outputs[0]):
            # A baseline's output is copied as its bytes lie: only where torch's are contiguous do elements correspond.
            if y.numel() and self._rig.reference.output_strides[i] is None:
                where = torch.randint(y.numel(), (min(PLACES, y.numel()),), generator=self._rig.source)
                self._taken.append((i, where, [row[i].view(-1)[where].double() for row in self._rig.outputs[:used]]))

    def compare(self, computed: Collection[int]) -> None:
        """Compares them with what lies there now, in the sets that torch has computed since.

        Raises:
            Rejected: WRONG_VALUES.
        """
        outputs, far = self._rig.outputs, dict[int, float]()
        for i, where, kept in self._taken:
            pairs = {k: (kept[k], outputs[k][i].view(-1)[where].double()) for k in computed if k < len(kept)}
            apart = distances if outputs[0][i].is_floating_point() else unequal
            for k, distance in apart(pairs).items():
                far[k] = max(far.get(k, 0.0), distance)
        if far:
            self._looked += len(far)
            self._worst = max(self._worst, *far.values())
            every_output(self._findings, far, self._looked, self._worst)
        self._taken = []


def distances(pairs: Mapping[int, tuple[torch.Tensor, torch.Tensor]]) -> dict[int, float]:
    """Returns of each set how far its values are from torch's, as a part of the root mean square of all of torch's.
    Where torch's are not finite nothing is compared; a value that is not finite beside one that is, is far."""
    sound = {k: torch.isfinite(theirs) for k, (_, theirs) in pairs.items()}
    squares = [theirs[sound[k]].square() for k, (_, theirs) in pairs.items()]
    size = math.sqrt(float(torch.cat(squares).mean())) if any(len(one) for one in squares) else 0.0
    found: dict[int, float] = {}
    for k, (ours, theirs) in pairs.items():
        off = (ours - theirs)[sound[k]]
        distance = float(off.square().mean().sqrt()) if len(off) else 0.0
        found[k] = (distance / size if size else float(distance > 0)) if math.isfinite(distance) else math.inf
    return found


def unequal(pairs: Mapping[int, tuple[torch.Tensor, torch.Tensor]]) -> dict[int, float]:
    """Returns of each set the part of its values that are not torch's."""
    return {k: float((ours != theirs).double().mean()) for k, (ours, theirs) in pairs.items()}


@check("every output")
def every_output(far: Mapping[int, float], looked: int, worst: float) -> str:
    """Catches calls of a timed window that were left out or answered with what lay there: 64 elements of every output
    that a CPU's window leaves are within 10% of torch's own for the same inputs, by the norm. Which elements is drawn
    when the clock has stopped.

    Does not catch: what is wrong by less ("values while timed" looks at whole outputs, of one window in four); a call
    whose inputs come again in the same window; sets that the window of the first baseline (eager) did not come to.

    Args:
        far: Of each input set looked at in this window, the distance.
        looked: Outputs looked at so far; `worst`: the largest distance among them.

    Raises:
        Rejected: WRONG_VALUES.
    """
    if wrong := [k for k, distance in far.items() if not distance <= FAR]:
        worst_of = max(far[k] for k in wrong)
        raise Rejected(
            Outcome.WRONG_VALUES,
            f"{len(wrong)} of {len(far)} outputs of a timed window are off by up to {worst_of:.0%} of their size",
        )
    return f"{looked} outputs of timed windows, at most {worst:.2%} from torch's"
