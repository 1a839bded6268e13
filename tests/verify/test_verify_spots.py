"""Some elements of every output of a window, beside torch's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from verify_guests import rig_of
from verify_problems import small_conv

from agentgen.records.trial import Outcome
from agentgen.verify.checks.spots import FAR, Spots, distances, unequal
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    with rig_of(small_conv()) as one:
        one.draw_inputs(Family.NORMAL)
        yield one


def answered(rig: Rig) -> None:
    """Has torch answer every set."""
    for inputs, (output,) in zip(rig.private, rig.outputs, strict=True):
        output.copy_(rig.reference.torch_outputs(inputs)[0])


def compared(rig: Rig, spots: Spots) -> None:
    spots.take(rig.sets)
    answered(rig)
    spots.compare(range(rig.sets))


def test_right_outputs_are_near(rig: Rig) -> None:
    findings = Findings()
    answered(rig)
    for y in rig.outputs[0]:
        y.mul_(1 + FAR / 10)
    compared(rig, Spots(rig, findings))
    (line,) = findings.checks
    assert (line.name, line.passed) == ("every output", True)
    assert line.evidence.startswith(f"{rig.sets} outputs of timed windows, at most ")


@pytest.mark.parametrize("wrong", ["zeros", "nan", "another set's", "half of it"])
def test_one_output_that_is_not_there_is_found(rig: Rig, wrong: str) -> None:
    answered(rig)
    y = rig.outputs[1][0]
    if wrong == "half of it":
        y[: len(y) // 2] = 0
    else:
        y.copy_({"zeros": torch.zeros_like(y), "nan": y * torch.nan, "another set's": rig.outputs[0][0]}[wrong])
    with pytest.raises(Rejected, match=f"1 of {rig.sets} outputs of a timed window are off by up to") as refused:
        compared(rig, Spots(rig, Findings()))
    assert refused.value.outcome is Outcome.WRONG_VALUES


def test_only_what_torch_has_computed_since_is_compared(rig: Rig) -> None:
    spots, findings = Spots(rig, Findings()), Findings()
    rig.poison_outputs()
    spots.take(1)
    answered(rig)
    spots.compare(range(1, rig.sets))
    spots.compare(range(rig.sets))  # nothing is left of that window
    assert findings.checks == []


def test_where_torch_is_not_finite_nothing_is_asked() -> None:
    ours, theirs = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([1.0, torch.inf, 2.0])
    assert distances({0: (ours, theirs)}) == {0: 0.0}
    assert distances({0: (theirs, ours)})[0] == torch.inf
    assert distances({0: (torch.zeros(3), torch.zeros(3))}) == {0: 0.0}
    assert distances({0: (torch.ones(3), torch.zeros(3))})[0] > FAR


def test_a_set_is_measured_by_the_size_of_all() -> None:
    small, large = torch.full((4,), 1e-3), torch.full((4,), 10.0)
    assert distances({0: (-small, small), 1: (large, large)})[0] < FAR


def test_of_whole_numbers_it_counts_those_that_differ() -> None:
    pairs = {0: (torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 3.0, 4000.0]))}
    assert unequal(pairs) == {0: 0.25}
