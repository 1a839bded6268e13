"""Is it right? Runs a session through the value families of a workload and looks at what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Accuracy, Check, Outcome
from agentgen.verify.draws import Family
from agentgen.verify.numerics import Moved, Pool, lift, nudge, nudge_rows
from agentgen.verify.reference import Reference
from agentgen.verify.rig import Rig
from agentgen.verify.session import Rejected, Session


@dataclass
class Findings:
    """What an evaluation has seen so far; becomes the trial."""

    checks: list[Check] = field(default_factory=list)
    accuracy: list[Accuracy] = field(default_factory=list)

    def passed(self, name: str, evidence: str) -> None:
        """Notes a check that passed."""
        self.checks.append(Check(name=name, passed=True, evidence=evidence))

    def failed(self, name: str, outcome: Outcome, *reasons: str) -> Rejected:
        """Notes a check that failed; returns the rejection to raise."""
        self.checks.append(Check(name=name, passed=False, evidence="; ".join(reasons)))
        return Rejected(outcome, *reasons)


def check_workload(
    session: Session, rig: Rig, arithmetic: Arithmetic, families: Sequence[Family], findings: Findings
) -> None:
    """Checks one workload: per family a window of fresh draws, each output against the float64 oracle.

    The first window is the candidate's first call; it may compile and autotune, and its outputs count like all others.

    Raises:
        Rejected: WRONG_VALUES with every family that failed, CHEATED when inputs were changed.
    """
    session.construct(rig)
    wrong: list[str] = []
    weights_of: Family | None = None
    selects = False
    for family in families:
        drawn = Family.INTEGERS if family is Family.INTEGERS else Family.NORMAL
        if drawn is not weights_of:
            rig.draw_weights(drawn)
            session.set_weights(rig)
            weights_of = drawn
        sets = 2 if family is Family.NORMAL else 1
        rig.draw_inputs(family, sets)
        rig.poison_outputs()
        session.run(rig, sets)
        exact = selects or family is Family.INTEGERS
        pool = Pool(rig.reference.workload, family.value, arithmetic, must_be_exact=exact)
        for which in range(sets):
            compare(rig, which, pool)
            require_unchanged(rig, which, findings)
        selects = selects or (family is Family.NORMAL and pool.selects)
        findings.accuracy.append(pool.accuracy())
        wrong += pool.problems()
    name = f"values: {rig.reference.workload}"
    if wrong:
        raise findings.failed(name, Outcome.WRONG_VALUES, *wrong)
    draws = sum(a.draws for a in findings.accuracy if a.workload == rig.reference.workload)
    findings.passed(name, f"{draws} secret draws of {len(families)} value families within the {arithmetic.value} gates")


def compare(rig: Rig, which: int, pool: Pool) -> None:
    """Adds output set `which` to the pool, against an oracle computed from the judge's private inputs."""
    outputs = rig.snapshot(which)
    oracle, by_torch, moved = truth(rig.reference, rig.private[which], rig.source)
    for place, out in enumerate(outputs):
        pool.add(out, oracle[place], by_torch[place], [other[place] for other in moved])
    pool.draws -= len(outputs) - 1  # one draw, however many outputs it has


def truth(
    reference: Reference, inputs: Sequence[torch.Tensor], source: torch.Generator
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[list[Moved]]]:
    """Returns, for these inputs, the oracle's outputs, torch's own, and what one ulp moves the oracle by: each
    value at random, each row at random, all up."""
    oracle = reference.oracle_outputs(inputs)
    moved: list[list[Moved]] = []
    for move in (partial(nudge, source=source), partial(nudge_rows, source=source), lift):
        others = reference.oracle_outputs([move(x) for x in inputs])
        moved.append([Moved.between(a, b) for a, b in zip(oracle, others, strict=True)])
        del others  # at the largest workloads there is room for two oracles, not for three
    return oracle, reference.torch_outputs(inputs), moved


def require_unchanged(rig: Rig, which: int, findings: Findings) -> None:
    """Raises Rejected if the guest wrote to input set `which`."""
    if not rig.inputs_unchanged(which):
        raise findings.failed(
            "inputs unchanged", Outcome.CHEATED, f"the candidate changed its inputs at {rig.reference.workload}"
        )


class Audit:
    """Looks at one output of a timed window: the inputs of that window exist since the gate closed."""

    def __init__(self, rig: Rig, arithmetic: Arithmetic, calls: int, every: int, findings: Findings) -> None:
        self.looked = 0
        self._rig = rig
        self._arithmetic = arithmetic
        self._calls = calls
        self._every = every
        self._windows = 0
        self._findings = findings

    def __call__(self) -> None:
        """Audits every n-th window, an output set chosen at random among those the window filled.

        Raises:
            Rejected: WRONG_VALUES: right when checked, wrong when timed.
        """
        rig = self._rig
        self._windows += 1
        if self._windows % self._every:
            return
        which = int(torch.randint(min(self._calls, rig.sets), (1,)))
        pool = Pool(f"timed window {self._windows}", Family.NORMAL.value, self._arithmetic, must_be_exact=False)
        compare(rig, which, pool)
        require_unchanged(rig, which, self._findings)
        self.looked += 1
        wrong = pool.problems()
        if wrong:
            raise self._findings.failed("values while timed", Outcome.WRONG_VALUES, *wrong)
