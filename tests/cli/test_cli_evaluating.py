"""What looks slower than the baseline is judged again before that is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic_evals import Case, Dataset
from pydantic_evals.reporting import EvaluationReport, ReportCase

from agentgen.cli.checkout import commit
from agentgen.cli.doing import Doing
from agentgen.cli.evaluating import AGAIN, Evaluating, about
from agentgen.cli.screen import screen
from agentgen.cli.tally import Tally
from agentgen.config import Settings
from agentgen.errors import DeviceLost
from agentgen.records.trial import Outcome, Speedup
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import About, Cases, Inputs, Subject
from agentgen.scoring.gate import Kind
from agentgen.scoring.journal import Journal
from agentgen.scoring.verdicts import Searched, Verdict

NAMES = ("steady", "doubtful")
KERNEL = Subject(problem=Path("p"), kernel=Path("cpp/k.py"))


def judged(name: str, ratio: float) -> ReportCase[Inputs, Verdict, About]:
    race = Speedup(
        baseline="eager", baseline_us=1000.0, ratio=ratio, low=0.996 * ratio, high=1.004 * ratio, faster=True
    )
    return ReportCase[Inputs, Verdict, About](
        name=name,
        inputs=KERNEL,
        metadata=None,
        expected_output=None,
        output=Verdict(accepted=True, outcome=Outcome.PASSED, races=(race,)),
        metrics={},
        attributes={},
        scores={},
        labels={},
        assertions={},
        task_duration=1.0,
        total_duration=1.0,
    )


def report(found: Sequence[tuple[str, float]]) -> Report:
    about = {"machine": {"device": "a CPU"}}
    cases = [judged(name, ratio) for name, ratio in found]
    return EvaluationReport(name="small", cases=cases, experiment_metadata=about)


def dataset() -> Cases:
    return Dataset[Inputs, Verdict, About](name="small", cases=[Case(name=name, inputs=KERNEL) for name in NAMES])


@dataclass
class Rehearsed(Evaluating):
    """Finds what it was told to find, and notes what it was asked for."""

    ratio: float = 2.0
    asked: list[tuple[list[str | None], int, str]] = field(default_factory=list[tuple[list[str | None], int, str]])

    def __call__(self, chosen: Cases, repeat: int, part: str = "") -> tuple[Report, Tally]:
        self.asked.append(([case.name for case in chosen.cases], repeat, part))
        goes = [(case.name or "", self.ratio) for case in chosen.cases for _ in range(repeat)]
        return report(goes), Tally(self.console, len(goes))


@dataclass
class Failing(Evaluating):
    """Has a machine that fails in further goes."""

    def _report(self, chosen: Cases, journal: Journal, doing: Doing, tally: Tally, repeat: int) -> Report:
        if repeat > 1:
            tally.failed(NAMES[1], DeviceLost("gone"))
        return report([(name, 2.0) for name in NAMES])

    def _recall(self, journal: Journal, doing: Doing, chosen: Cases, repeat: int) -> None:
        """Has nothing to recall."""


def rehearsed(ratio: float) -> Rehearsed:
    settings = Settings(results=Path("results"), store="sqlite://", problems=Path("problems"))
    return Rehearsed(settings, Path("small.yaml"), Path(), ("cpu",), screen("none"), ratio=ratio)


OLD = [(name, 2.0) for name in NAMES for _ in range(3)]


def test_what_looks_slower_and_is_not_is_no_regression() -> None:
    evaluating = rehearsed(2.0)
    compared = evaluating.compared(report([("steady", 2.0), ("doubtful", 1.9)]), report(OLD), dataset())
    assert evaluating.asked == [(["doubtful"], AGAIN, "again")]
    assert (compared.changes, compared.regression) == ((), False)


def test_what_is_slower_again_is_a_regression() -> None:
    evaluating = rehearsed(1.9)
    compared = evaluating.compared(report([("steady", 2.0), ("doubtful", 1.9)]), report(OLD), dataset())
    assert [(change.kind, change.case) for change in compared.changes] == [(Kind.SLOWER, "doubtful")]
    assert "in 6 goes" in compared.changes[0].new


def test_where_nothing_looks_slower_nothing_is_done_again() -> None:
    evaluating = rehearsed(1.0)
    assert not evaluating.compared(report([("steady", 2.0), ("doubtful", 2.1)]), report(OLD), dataset()).regression
    assert evaluating.asked == []


def test_a_go_after_the_first_that_the_machine_failed_keeps_what_is_found(tmp_path: Path) -> None:
    (tmp_path / "p").symlink_to(Path(__file__).parents[1] / "problems" / "clip")
    (tmp_path / "cpp").mkdir()
    (tmp_path / KERNEL.kernel).write_text("class ModelNew: ...\n")
    settings = Settings(results=tmp_path / "results", store="sqlite://", problems=tmp_path)
    evaluating = Failing(settings, tmp_path / "small.yaml", tmp_path, ("cpu",), screen("none"))
    evaluating(dataset(), 1)
    (kept,) = tmp_path.glob("results/runs/eval-*.jsonl")
    evaluating.compared(report([("steady", 2.0), ("doubtful", 1.9)]), report(OLD), dataset())
    assert evaluating.may_go_on
    evaluating.end()
    assert kept.exists()


def test_a_report_says_which_models_and_which_agentgen() -> None:
    found = report([("a", 2.0), ("b", 2.0)])
    assert "models" not in about(found)
    for case, models in zip(found.cases, (("x", "ideas=y"), ("x",)), strict=True):
        run = Searched(id="r", models=models, candidates=1, accepted=1, seconds=1.0, tokens=None, cost_usd=None)
        case.output = case.output.model_copy(update={"run": run})
    assert about(found)["models"] == ["ideas=y", "x"]
    assert about(found).get("commit") == commit()
