"""The dataset of the judge's evaluation, as tests read it, and judges in this process."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path

import harness as naive
import pytest
from mutants import without

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import DeviceType
from agentgen.records.run import Effort
from agentgen.sandbox.process import BOTH_SIDES
from agentgen.scoring.cases import KernelCase, kernels, language_of, load, on_device
from agentgen.scoring.verdicts import Verdict
from agentgen.store import catalog
from agentgen.verify.evaluation import evaluate
from agentgen.verify.judge import Judge

ROOT = Path(__file__).parents[2]
DATASET = ROOT / "evals" / "judge.yaml"


def corpus(device: DeviceType, *, honest: bool) -> list[KernelCase]:
    """Returns the cases that a device can decide, those of one problem together."""
    cases = kernels(on_device(load(DATASET), device))
    return [case for case in cases if case.expected_output and case.expected_output.accepted is honest]


def parameters(cases: Collection[KernelCase]) -> list[object]:
    """Returns cases for `parametrize`."""
    return [pytest.param(case, id=str(case.name)) for case in cases]


def file_of(path: Path) -> Path:
    """Returns a path of the dataset, resolved."""
    return (DATASET.parent / path).resolve()


def open_judge(problem: Path, device: str) -> Judge:
    """Returns a judge in this process; the caller closes it."""
    found = catalog.load(str(file_of(problem)), ROOT / "problems")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in BOTH_SIDES.items():
            patch.setenv(name, value)
        return Judge(found, device, found.arithmetic.on("cpu" if device == "cpu" else "cuda"), Effort.QUICK)


def verdict(judge: Judge, case: KernelCase, off: Collection[str]) -> Verdict:
    """Returns what a judge without some of its checks says of a case."""
    source = file_of(case.inputs.kernel).read_text()
    candidate = Candidate(source=source, language=language_of(case.inputs))
    with without(off):
        return Verdict.of(evaluate(judge, candidate, lambda _: None, timing=True, depth=case.inputs.depth))


def cheats_with_time(case: KernelCase) -> bool:
    """Whether a cheat's answers are right and its time is not. Triton's interpreter has none that anybody believes."""
    return bool(case.metadata and case.metadata.fools == "time") and language_of(case.inputs) is not Language.TRITON


def needs_quiet(case: KernelCase) -> bool:
    """Whether only times tell what a cheat does: beside other work one of them was accepted."""
    return bool(case.expected_output and "every call counts" in case.expected_output.by)


def ask(harness: naive.NaiveHarness, case: KernelCase) -> naive.Verdict:
    """Returns what the naive harness says of a case."""
    assert case.metadata
    problem, kernel = file_of(case.inputs.problem), file_of(case.inputs.kernel)
    return harness.verdict(problem, kernel, reference_first=case.metadata.reference_first)


class Bank:
    """One open judge at a time."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._problem: Path | None = None
        self._judge: Judge | None = None

    def of(self, case: KernelCase) -> Judge:
        """Returns the judge of a case's problem."""
        if self._judge is None or self._problem != case.inputs.problem:
            self.close()
            self._judge, self._problem = open_judge(case.inputs.problem, self._device), case.inputs.problem
        return self._judge

    def close(self) -> None:
        """Ends it."""
        if self._judge:
            self._judge.close()
        self._judge = None


@contextmanager
def bank(device: str) -> Generator[Bank]:
    """Yields judges, and ends the last."""
    one = Bank(device)
    try:
        yield one
    finally:
        one.close()
