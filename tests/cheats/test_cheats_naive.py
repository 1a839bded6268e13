"""Each cheat fools a harness as many have written it: one that fools nothing would prove nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus import ROOT, corpus, file_of, parameters
from harness import NaiveHarness

from agentgen.records.candidate import Language
from agentgen.scoring.cases import KernelCase, language_of

pytestmark = pytest.mark.slow
GAIN = 0.7
"""A cheat of the clock must come out in less than this share of torch's own time."""


@pytest.fixture(scope="module")
def naive() -> Iterator[NaiveHarness]:
    with NaiveHarness() as harness:
        yield harness


@pytest.fixture(scope="module")
def interpreted() -> Iterator[NaiveHarness]:
    """With Triton's interpreter, whose calls take seconds: it times a single one."""
    with NaiveHarness(interpret=True) as harness:
        yield harness


@pytest.mark.parametrize("case", parameters(corpus("cpu", honest=False)))
def test_it_fools_the_naive_harness(naive: NaiveHarness, interpreted: NaiveHarness, case: KernelCase) -> None:
    assert case.metadata
    harness = interpreted if language_of(case.inputs) is Language.TRITON else naive
    said = harness.verdict(
        file_of(case.inputs.problem),
        file_of(case.inputs.kernel),
        reference_first=case.metadata.reference_first,
    )
    assert said.correct
    if case.metadata.fools == "time":
        assert said.candidate_us < GAIN * said.reference_us


HONEST = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b OFFSET
"""


@pytest.mark.parametrize(("offset", "right"), [("", True), ("+ 1", False), ("* 1.1", False)])
def test_it_tells_right_from_plainly_wrong(naive: NaiveHarness, tmp_path: Path, offset: str, right: bool) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(HONEST.replace("OFFSET", offset))
    said = naive.verdict(ROOT / "tests" / "problems" / "matmul", kernel)
    assert said.correct is right
    assert said.candidate_us > 0
