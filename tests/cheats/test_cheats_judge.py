"""Each cheat is refused for what it is, by a judge that does not even read its text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from corpus import Bank, bank, corpus, parameters, verdict

from agentgen.scoring.cases import KernelCase

CHEATS = corpus("cpu", honest=False)


@pytest.fixture(scope="module")
def judges() -> Iterator[Bank]:
    with bank("cpu") as judges:
        yield judges


@pytest.mark.slow
@pytest.mark.parametrize("case", parameters(CHEATS))
def test_it_is_refused_without_the_screen(judges: Bank, case: KernelCase) -> None:
    found = verdict(judges.of(case), case, off=["screen"])
    assert not found.accepted
    assert case.expected_output
    assert found.caused_by(case.expected_output), found
