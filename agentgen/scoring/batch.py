"""Judges a dataset's kernels, one after the other, with one open judge at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter
from pydantic_evals.reporting import EvaluationReport

from agentgen.records.candidate import Candidate
from agentgen.records.machine import Machine
from agentgen.records.trial import Depth, Trial
from agentgen.scoring.cases import About, Kernels, Subject, Verdict, language_of

Report = EvaluationReport[Subject, Verdict, About]
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Report)


class Judge(Protocol):
    """What is needed of a judge."""

    def evaluate(self, candidate: Candidate, *, depth: Depth) -> Trial: ...


OpenJudge = Callable[[Path], AbstractContextManager[Judge]]
"""The judge of the problem in a folder."""
OnVerdict = Callable[[Subject, Verdict], None]


class Bench:
    """The task of an evaluation: keeps the judge of the last problem open for the next kernel."""

    def __init__(self, folder: Path, open_judge: OpenJudge, on_verdict: OnVerdict) -> None:
        self._folder = folder
        self._open = open_judge
        self._on_verdict = on_verdict
        self._problem: Path | None = None
        self._context: AbstractContextManager[Judge] | None = None
        self._judge: Judge | None = None
        self.machine: Machine | None = None

    def judge(self, subject: Subject) -> Verdict:
        """Returns the verdict on one kernel. Only a failing machine raises."""
        source = (self._folder / subject.kernel).read_text(encoding="utf-8")
        candidate = Candidate(source=source, language=language_of(subject))
        trial = self._judge_of(subject.problem).evaluate(candidate, depth=subject.depth)
        self.machine = trial.machine
        verdict = Verdict.of(trial)
        self._on_verdict(subject, verdict)
        return verdict

    def close(self) -> None:
        """Ends the judge that is open."""
        if self._context:
            self._context.__exit__(None, None, None)
        self._context = self._judge = self._problem = None

    def _judge_of(self, problem: Path) -> Judge:
        if self._judge is None or problem != self._problem:
            self.close()
            self._context = self._open((self._folder / problem).resolve())
            self._judge = self._context.__enter__()
            self._problem = problem
        return self._judge


def judge_all(dataset: Kernels, folder: Path, open_judge: OpenJudge, on_verdict: OnVerdict) -> Report:
    """Returns the report over all cases. A case that the machine failed is among the report's failures.

    Args:
        dataset: The cases.
        folder: That their paths are relative to.
        open_judge: Opens the judge of a problem; one at a time is open.
        on_verdict: Told each verdict as it comes.
    """
    bench = Bench(folder, open_judge, on_verdict)
    try:
        report = dataset.evaluate_sync(
            bench.judge, name=dataset.name, task_name="judge", max_concurrency=1, progress=False
        )
    finally:
        bench.close()
    machine = bench.machine.model_dump(mode="json") if bench.machine else None
    report.experiment_metadata = {**(report.experiment_metadata or {}), "machine": machine}
    return report


def as_expected(report: Report) -> bool:
    """Whether every case ran, and every assertion about it holds."""
    return not report.failures and all(
        assertion.value for case in report.cases for assertion in case.assertions.values()
    )


def save(report: Report, path: Path) -> None:
    """Writes a report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_ADAPTER.dump_json(report, indent=1) + b"\n")


def read(path: Path) -> Report:
    """Returns a report that was saved."""
    return _ADAPTER.validate_json(path.read_bytes())
