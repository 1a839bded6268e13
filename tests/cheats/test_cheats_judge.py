"""Each cheat is refused for what it is, by a judge that does not even read its text.

Those that only times tell are in test_cheats_clock.py, which runs alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus import DATASET, ROOT, Bank, bank, corpus, file_of, needs_quiet, parameters, verdict

from agentgen.records.trial import Outcome
from agentgen.scoring.cases import KernelCase, kernels, load
from agentgen.store import catalog

CHEATS = corpus("cpu", honest=False)


BUSY = {"clocks agree", "instruments agree", "every call counts", "neighbouring shapes"}
"""What may find a cheat first on a machine that is slowed by others: times."""
RACY = {"cheats/cpp/racy_tail"}
"""Its thread may still write when the tensor is gone: 3 of 5 times it crashed on a machine with ten others at work."""


@pytest.fixture(scope="module")
def judges() -> Iterator[Bank]:
    with bank("cpu") as judges:
        yield judges


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters([case for case in CHEATS if not needs_quiet(case)]))
def test_it_is_refused_without_the_screen(judges: Bank, case: KernelCase) -> None:
    found = verdict(judges.of(case), case, off=["screen"])
    assert not found.accepted
    assert case.expected_output
    if case.name in RACY and found.outcome is Outcome.CRASHED:
        return
    assert found.caused_by(case.expected_output) or BUSY & set(found.by), found


def test_the_set_is_large_and_each_mechanism_counts_once() -> None:
    mechanisms = [case.metadata.mechanism for case in CHEATS if case.metadata]
    assert len(set(mechanisms)) >= 80
    assert None not in mechanisms


def test_every_kernel_of_the_folders_is_a_case() -> None:
    folders = {file.resolve() for folder in ("cheats", "honest") for file in (ROOT / "tests" / folder).glob("*/*.py")}
    named = {file_of(case.inputs.kernel) for case in kernels(load(DATASET))}
    twelve = {ROOT / "tests" / "honest" / "cpp" / f"{name}.py" for name in catalog.names(ROOT / "problems")}
    assert folders - twelve == named
