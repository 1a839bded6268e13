"""Each of our problems, on a CPU: its judge accepts a plain kernel in C++ and one in Triton (interpreted).

At the problem's small workloads, and not timed: `main` takes half a minute for each. The kernels of the small problems
are timed (`agentgen eval evals/judge.yaml`), and conv2d is solved whole.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentgen.records.candidate import Candidate, Language
from agentgen.records.run import Effort
from agentgen.records.trial import Outcome
from agentgen.store import catalog
from agentgen.workers.local import LocalJudge

HERE = Path(__file__).parent
CATALOG = HERE.parents[1] / "problems"
PROBLEMS = catalog.names(CATALOG)


def test_there_are_twelve_with_a_kernel_in_each_language() -> None:
    assert len(PROBLEMS) == 12
    for language in ("cpp", "triton"):
        assert {file.stem for file in (HERE / language).glob("*.py")} > set(PROBLEMS)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH")
@pytest.mark.parametrize("name", PROBLEMS)
def test_plain_kernels_are_accepted(name: str) -> None:
    whole = catalog.load(name, CATALOG)
    smaller = next(workload for workload in whole.workloads if workload is not whole.main)
    main = smaller.model_copy(update={"name": "main"})
    problem = whole.model_copy(update={"workloads": (main, *whole.workloads[2:]), "neighbours": ()})
    with LocalJudge(problem, "cpu", problem.arithmetic.on("cpu"), Effort.QUICK) as judge:
        for language in (Language.CPP, Language.TRITON):
            source = (HERE / language.value / f"{name}.py").read_text()
            trial = judge.evaluate(Candidate(source=source, language=language), timing=False)
            assert trial.outcome is Outcome.PASSED, trial.reasons
