"""Entries of the leaderboard, for the tests of whatever reads, shows or judges them."""

from __future__ import annotations

from datetime import UTC, datetime

import made_records
from made_records import REFERENCE, gpu, problem, timing

from agentgen.records.candidate import Candidate, Language
from agentgen.records.entry import Entry, Finding, Origin, Reverified, Step
from agentgen.records.idea import Category, Idea
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.trial import Clock, Depth, Neighbour, Outcome, Speedup, Trial

__all__ = ["DAY", "MACHINE", "REFERENCE", "SOURCE", "again", "certificate", "entry", "problem", "refused", "speedup"]

DAY = datetime(2026, 11, 22, 20, 30, tzinfo=UTC)
SOURCE = "import torch\r\n\n\nclass ModelNew(torch.nn.Module):\n    pass  # µ\n"
MACHINE = gpu()


def speedup(
    ratio: float, wide: float = 0.01, baseline: str = "torch.compile default", baseline_us: float = 200.0
) -> Speedup:
    return made_records.speedup(ratio, ratio * (1 - wide), ratio * (1 + wide), baseline, baseline_us)


def certificate(of: Candidate, ratio: float = 2.0, wide: float = 0.01, machine: Machine = MACHINE) -> Trial:
    near = Neighbour(workload="odd sizes", median_us=90.0, speedup=speedup(0.5, baseline="eager"))
    return Trial(
        candidate=of.id,
        problem="relu",
        arithmetic=Arithmetic.FP32,
        machine=machine,
        depth=Depth.CERTIFY,
        outcome=Outcome.PASSED,
        accuracy_class=Arithmetic.FP32,
        timing=timing(200 / ratio, clock=Clock.GATE, windows=42, guests=2),
        speedups=(speedup(ratio, wide), speedup(1.5 * ratio, wide, "eager", 300.0)),
        neighbours=(near,),
        roofline_fraction=0.5,
    )


def refused(of: Candidate, machine: Machine = MACHINE) -> Trial:
    return Trial(
        candidate=of.id,
        problem="relu",
        arithmetic=Arithmetic.FP32,
        machine=machine,
        depth=Depth.CERTIFY,
        outcome=Outcome.WRONG_VALUES,
        reasons=("main, normal: relative L2 error 1.0",),
    )


def entry(
    source: str = SOURCE,
    ratio: float = 2.0,
    wide: float = 0.01,
    *,
    model: str = "gpt-oss-120b",
    title: str = "Keep the filter in shared memory",
    machine: Machine = MACHINE,
    of: Problem | None = None,
) -> Entry:
    """Returns a kernel of one idea on the reference."""
    asked = of or problem()
    idea = Idea(
        parent=asked.root(Arithmetic.FP32),
        category=Category.MEMORY_ACCESS,
        title=title,
        reasoning="because",
        predicted_speedup=1.5,
    )
    candidate = Candidate(source=source, language=Language.TRITON, idea=idea.id)
    trial = certificate(candidate, ratio, wide, machine).model_copy(update={"problem": asked.name})
    step = Step(candidate=candidate.id, language=candidate.language, idea=idea, idea_by="b", written_by=model)
    origin = Origin(
        run="20261122-200601-f345",
        begun=DAY,
        model=model,
        machine=machine,
        certified=DAY,
        agentgen="0.1.0",
        commit="cf8b8c1",
    )
    return Entry(problem=asked, candidate=candidate, trial=trial, chain=(step,), origin=origin)


def again(finding: Finding = Finding.SAME, words: str = "over eager 2.0 then, 2.0 now") -> Reverified:
    return Reverified(date=DAY, finding=finding, words=words, machine=MACHINE, goes=1, median_us=100.0)
