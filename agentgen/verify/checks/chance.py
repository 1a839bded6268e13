"""Is it the same every time? Races, uninitialised memory, addresses that matter: what is wrong once in a while."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import torch

from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Depth, Outcome
from agentgen.verify.checks.values import Truth, truth
from agentgen.verify.draws import Family
from agentgen.verify.findings import Rejected, check
from agentgen.verify.numerics import Pool
from agentgen.verify.rig import Rig, bits
from agentgen.verify.session import Session

AGAIN: Final = 32
"""Calls more that must be right where bits differ."""
SECONDS: Final = {Depth.JUDGE: 0.4, Depth.CERTIFY: 4.0}
"""How long one call follows another on a GPU, of a kernel that is worth it. A convolution that Triton had compiled with
a race was wrong in one call of 400, of which 0.4 s has 400 (docs/decisions/035-seldom-wrong.md)."""


@check("same answer")
def same_answer(session: Session, rig: Rig, arithmetic: Arithmetic, seconds: float = 0.0) -> str:
    """Catches chance: races, uninitialised memory, addresses that matter. The same content at other addresses, and
    again and again at the same ones, must give the same bits; where it does not (atomics), each of these calls and 32
    more must meet the gates.

    Does not catch: a race that comes out alike in every one of these calls.

    Args:
        session: A guest that is warm at `rig`.
        rig: The workload.
        arithmetic: Whose gates hold where bits differ.
        seconds: How long to go on once every set was filled twice.
    """
    rig.draw_inputs(Family.NORMAL, 1)
    rig.repeat_inputs()
    first: list[torch.Tensor] | None = None
    right: Truth | None = None
    calls = different = 0
    end = time.perf_counter() + seconds
    while calls < 2 * rig.sets + (AGAIN if right else 0) or time.perf_counter() < end:
        rig.poison_outputs()
        session.run(rig, rig.sets)
        for which in range(rig.sets):  # at all addresses
            calls += 1
            out = rig.snapshot(which)
            first = first or out
            if all(torch.equal(bits(a), bits(b)) for a, b in zip(first, out, strict=True)):
                continue
            different += 1
            if right is None:
                right = truth(rig.reference, rig.private[0], rig.source)
                _require_right(rig, right, first, arithmetic, "call 1")
            _require_right(rig, right, out, arithmetic, f"call {calls:,}, at set {which}")
    if right:
        return f"{different:,} of {calls:,} calls differ in bits; all are within the gates"
    return f"{calls:,} calls at {rig.sets} addresses gave the same bits"


def _require_right(rig: Rig, right: Truth, outputs: Sequence[torch.Tensor], arithmetic: Arithmetic, where: str) -> None:
    pool = Pool(rig.reference.workload, Family.NORMAL.value, arithmetic, must_be_exact=False)
    right.add_to(pool, outputs)
    if wrong := pool.problems():
        raise Rejected(Outcome.NONDETERMINISTIC, f"{where}, on the same content: {wrong[0]}")
