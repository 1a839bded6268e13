"""The gate from end to end, through the command line, with real kernels: what is planted is caught, in one line.

A planted slowdown, and twenty evaluations without a change, are for a machine that does nothing else: `planted.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from planted import Place

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder for a dataset."""
    return Place(tmp_path, "cpu")


def test_what_is_planted_is_caught_each_in_one_line(place: Place) -> None:
    place.write("wrong", "crashing", "failing", "removed")
    assert place.evaluate("--update-baseline").code == 0

    place.kernel("wrong", wrong=True)
    place.kernel("crashing", crashes=True)
    place.breaks()
    for name, begins, says in (
        ("wrong", "lost: wrong: Decision: PASSED -> WRONG_VALUES: ", "relative L2 error"),
        ("crashing", "lost: crashing: Decision: PASSED -> CRASHED: ", "SIGABRT"),
        ("failing", "crashed: failing: PASSED -> ", "this machine is broken"),
    ):
        said = place.evaluate("--only", name)
        assert said.code == 1
        (line,) = said.regressions
        assert line.startswith(begins)
        assert says in line

    place.write("wrong")
    said = place.evaluate("--only", "wrong", "--only", "removed")
    assert (said.code, said.regressions) == (1, ["missing: removed: PASSED -> no such case"])
