"""Is it right? Runs a session through the value families of a workload and looks at what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from agentgen.errors import ReferenceInvalid
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.verify.conditioning import Moved, lift, nudge, nudge_rows
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, Rejected, check
from agentgen.verify.numerics import FLOOR, Pool, loosest
from agentgen.verify.reference import Reference
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session

NORMAL_DRAWS = 2
"""At a workload; one of every other family."""


def check_workload(
    session: Session,
    rig: Rig,
    arithmetic: Arithmetic,
    families: Sequence[Family],
    findings: Findings,
    normal_draws: int = NORMAL_DRAWS,
) -> None:
    """Checks one workload: per family a window of fresh draws, each output against the float64 oracle.

    The first window is the candidate's first call; it may compile and autotune, and its outputs count like all others.

    Raises:
        Rejected: WRONG_VALUES with every family that failed, CHEATED when inputs were changed.
    """
    session.construct(rig)
    pools: list[Pool] = []
    weights_of: Family | None = None
    rig.selects = False
    for family in families:
        drawn = Family.INTEGERS if family is Family.INTEGERS else Family.NORMAL
        if drawn is not weights_of:
            rig.draw_weights(drawn)
            session.set_weights(rig)
            weights_of = drawn
        sets = normal_draws if family is Family.NORMAL else 1
        rig.draw_inputs(family, sets)
        rig.poison_outputs(range(sets))
        if session.page is None:  # as before a CPU's timed window: SIGCONT is no sign that somebody measures
            session.guest.pause()
            session.guest.resume()
        session.run(rig, sets)
        exact = rig.selects or family is Family.INTEGERS
        new_pool = partial(Pool, rig.reference.workload, family.value, arithmetic, must_be_exact=exact)
        pool = judged(rig, {which: rig.snapshot(which) for which in range(sets)}, new_pool)
        for which in range(sets):
            inputs_unchanged(findings, rig, which)
        rig.selects = rig.selects or (family is Family.NORMAL and pool.selects)
        findings.accuracy.append(pool.accuracy())
        pools.append(pool)
    if not any(pool.gated for pool in pools):
        raise ReferenceInvalid(
            f"at workload {rig.reference.workload} no value family says anything: the float64 oracle is not finite, or "
            "one ulp of the inputs moves it by more than 1e-2"
        )
    values.at(rig.reference.workload)(findings, pools)


@check("values")
def values(pools: Sequence[Pool]) -> str:
    """Catches wrong results: relative L2 error against a float64 oracle, pooled over the secret draws of each value
    family, and every single element against its size and its row's. The gates are those of the problem's arithmetic,
    so it also catches computing in less than that. The seeds are drawn after the candidate is loaded.

    Does not catch: what is wrong only at shapes or values that no draw has; errors within four times torch's own; a
    family in which one ulp of the inputs moves the answer by more than 1e-2 (reported, not gated).
    """
    wrong = [problem for pool in pools for problem in pool.problems()]
    arithmetic = pools[0].arithmetic
    if wrong:
        worth = loosest(pool.reached for pool in pools if pool.gated)
        if worth and FLOOR[worth] > FLOOR[arithmetic]:
            wrong.append(
                f"it computes in less than {arithmetic.value}: every family is within the gates of {worth.value}"
            )
        raise Rejected(Outcome.WRONG_VALUES, *wrong)
    draws = sum(pool.draws for pool in pools)
    return f"{draws} secret draws of {len(pools)} value families within the {arithmetic.value} gates"


@dataclass(frozen=True)
class Truth:
    """What is right for one draw."""

    oracle: list[torch.Tensor]
    by_torch: list[torch.Tensor]
    moved: list[list[Moved]]
    """What one ulp moves the oracle by: each value at random, each row at random, all up; each by output. None of them
    is known where only narrow gates are to be met."""

    def add_to(self, pool: Pool, outputs: Sequence[torch.Tensor]) -> None:
        """Adds one draw's outputs to a pool."""
        for place, out in enumerate(outputs):
            pool.add(out, self.oracle[place], self.by_torch[place], [other[place] for other in self.moved])
        pool.draws -= len(outputs) - 1  # one draw, however many outputs it has


def truth(reference: Reference, inputs: Sequence[torch.Tensor], source: torch.Generator) -> Truth:
    """Computes what is right for these inputs."""
    oracle = reference.oracle_outputs(inputs)
    moved: list[list[Moved]] = []
    ulp = max((torch.finfo(x.dtype).eps for x in inputs if x.is_floating_point()), default=None)
    for move in (partial(nudge, source=source), partial(nudge_rows, source=source), lift):
        others = reference.oracle_outputs([move(x) for x in inputs])
        moved.append([replace(Moved.between(a, b), ulp=ulp) for a, b in zip(oracle, others, strict=True)])
        del others  # at the largest workloads there is room for two oracles, not for three
    return Truth(oracle, reference.torch_outputs(inputs), moved)


def judged(rig: Rig, outputs: Mapping[int, Sequence[torch.Tensor]], new_pool: Callable[[], Pool]) -> Pool:
    """Returns a pool of private copies of output sets, against oracles of the private inputs they belong to.

    What one ulp of the inputs does to the oracle takes three more oracles, and only ever widens a gate: nobody asks
    where the narrow gates are met (decision 015: three quarters of a check's time).
    """
    pool, reference = new_pool(), rig.reference
    for which, outs in outputs.items():
        inputs = rig.private[which]
        narrow = Truth(reference.oracle_outputs(inputs), reference.torch_outputs(inputs), [])
        narrow.add_to(pool, outs)
        del narrow
    if pool.passes_narrowly:
        return pool
    pool = new_pool()
    for which, outs in outputs.items():
        truth(reference, rig.private[which], rig.source).add_to(pool, outs)
    return pool


@check("inputs unchanged")
def inputs_unchanged(rig: Rig, which: int) -> str:
    """Catches writing to the inputs, bit by bit, after every window that is looked at: an in-place kernel, a reference
    that is made easy by zeroing what it reads. Shape, strides and torch's own settings are compared in the guest.

    Does not catch: a change that is undone before the window ends.
    """
    if not rig.inputs_unchanged(which):
        raise Rejected(Outcome.CHEATED, f"the candidate changed its inputs at {rig.reference.workload}")
    return "every bit as it was"
