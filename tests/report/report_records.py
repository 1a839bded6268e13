"""Records as a run leaves them, for the tests of reports."""

from __future__ import annotations

from made_records import cpu, speedup, timing

from agentgen.records.candidate import Candidate, Language
from agentgen.records.idea import Category, Idea
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Accuracy, Check, Neighbour, Outcome, Trial

MACHINE = cpu()


def idea(title: str, parent: str = "root") -> Idea:
    return Idea(parent=parent, category=Category.MEMORY_ACCESS, title=title, reasoning="because")


def candidate(text: str, of: Idea, *, parent: str | None = None, repair: int = 0) -> Candidate:
    return Candidate(source=text, language=Language.CPP, idea=of.id, parent=parent, repair=repair)


def passed(of: Candidate, ratio: float, low: float, high: float, *, timed: bool = True) -> Trial:
    timed_at = timing(6214.4 / ratio, 6000 / ratio, 6500 / ratio, copy_us=80)
    raced = speedup(ratio, low, high, baseline_us=6214.4)
    return Trial(
        candidate=of.id,
        problem="conv2d",
        arithmetic=Arithmetic.FP32,
        machine=MACHINE,
        outcome=Outcome.PASSED,
        checks=(Check(name="own work", passed=True, evidence="0 foreign kernels"),),
        accuracy=(accuracy("main", "normal", 2e-7), accuracy("main", "scaled", 9e-7), accuracy("tiny", "zeros", 1e-8)),
        timing=timed_at if timed else None,
        speedups=(raced,) if timed else (),
        roofline_fraction=0.31 if timed else None,
        seconds={"start": 0.01, "build": 0.25, "check": 1.5, "time": 2.0},
    )


def failed(of: Candidate, outcome: Outcome, *reasons: str) -> Trial:
    return Trial(
        candidate=of.id,
        problem="conv2d",
        arithmetic=Arithmetic.FP32,
        machine=MACHINE,
        outcome=outcome,
        reasons=reasons,
        log="[bold]guest says[/bold]",
    )


def accuracy(workload: str, family: str, relative_l2: float) -> Accuracy:
    return Accuracy(
        workload=workload,
        family=family,
        draws=3,
        relative_l2=relative_l2,
        gate=2e-6,
        torch_relative_l2=1e-7,
        worst_element=relative_l2 / 2e-6 / 2,
    )


def with_neighbours(trial: Trial) -> Trial:
    """The same, timed at two neighbouring shapes: a little slower at one, hopeless at the other."""
    ratios = {"half batch": 1.6, "odd sizes": 0.04}
    near = tuple(
        Neighbour(
            workload=name,
            median_us=100.0,
            speedup=speedup(ratio, max(ratio - 0.1, 0.01), ratio + 0.1, baseline_us=100 * ratio),
        )
        for name, ratio in ratios.items()
    )
    return trial.model_copy(update={"neighbours": near})
