"""What the screen refuses is refused without it as well: a judge that does not even read the text.

The others are judged as they are by `agentgen eval evals/judge.yaml`, which CI runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus import DATASET, ROOT, Bank, bank, corpus, file_of, parameters, verdict

from agentgen.records.candidate import Candidate
from agentgen.records.problem import OwnWork
from agentgen.scoring.cases import KernelCase, language_of, load
from agentgen.store import catalog
from agentgen.verify.checks.screens import screen
from agentgen.verify.findings import Findings, Rejected

CHEATS = corpus("cpu", honest=False)


def screened(case: KernelCase) -> bool:
    candidate = Candidate(source=file_of(case.inputs.kernel).read_text(), language=language_of(case.inputs))
    try:
        screen(Findings(), candidate, OwnWork.STRICT)
    except Rejected:
        return True
    return False


@pytest.fixture(scope="module")
def judges() -> Iterator[Bank]:
    with bank("cpu") as judges:
        yield judges


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters([case for case in CHEATS if screened(case)]))
def test_it_is_refused_without_the_screen(judges: Bank, case: KernelCase) -> None:
    assert not verdict(judges.of(case), case, off=["screen"]).accepted


def test_the_set_is_large_and_each_mechanism_counts_once() -> None:
    mechanisms = [case.metadata.mechanism for case in CHEATS if case.metadata]
    assert len(set(mechanisms)) >= 80
    assert None not in mechanisms


def test_every_kernel_of_the_folders_is_a_case() -> None:
    folders = {file.resolve() for folder in ("cheats", "honest") for file in (ROOT / "tests" / folder).glob("*/*.py")}
    named = {file_of(case.inputs.kernel) for case in load(DATASET).cases}
    twelve = {ROOT / "tests" / "honest" / "cpp" / f"{name}.py" for name in catalog.names(ROOT / "problems")}
    assert folders - twelve == named
