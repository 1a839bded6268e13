"""Honest Triton kernels of our problems are accepted: on a GPU in full, without one by the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentgen.records.candidate import Candidate, Language
from agentgen.records.run import Effort
from agentgen.records.trial import Outcome, Trial
from agentgen.store import catalog
from agentgen.verify.evaluation import evaluate
from agentgen.verify.judge import Judge

HERE = Path(__file__).parent
PROBLEMS = HERE.parents[1] / "problems"
KERNELS = sorted(file.stem for file in (HERE / "triton").glob("*.py"))


def trial_of(name: str, device: str) -> Trial:
    problem = catalog.load(name, PROBLEMS)
    judge = Judge(problem, device, problem.arithmetic, Effort.QUICK)
    try:
        source = (HERE / "triton" / f"{name}.py").read_text()
        return evaluate(judge, Candidate(source=source, language=Language.TRITON), lambda _stage: None, timing=True)
    finally:
        judge.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_the_interpreter_accepts_it(name: str) -> None:
    pytest.importorskip("triton")
    trial = trial_of(name, "cpu")
    assert trial.outcome is Outcome.PASSED, trial.reasons


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("name", KERNELS)
def test_a_gpu_accepts_it(name: str) -> None:
    trial = trial_of(name, "cuda:0")
    assert trial.outcome is Outcome.PASSED, trial.reasons
    assert trial.timing is not None
