"""Each cheat with answers fools a harness as many have written it: one that fools nothing would prove nothing. Of such
as are honest there, and cheat this judge, no more is asked than to come out right."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from corpus import ROOT, ask, cheats_with_time, corpus, parameters
from harness import NaiveHarness, Verdict

from agentgen.records.candidate import Language
from agentgen.scoring.cases import KernelCase, language_of

pytestmark = pytest.mark.slow
CASES = [case for case in corpus("cpu", honest=False) if not cheats_with_time(case)]


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Mapping[str, Future[Verdict]]]:
    """What it says of all, two at a time."""
    with ThreadPoolExecutor(2, initializer=_start_harnesses) as pool:
        yield {str(case.name): pool.submit(_said_of, case) for case in CASES}
        for harness in _STARTED:
            harness.__exit__()


_STARTED: list[NaiveHarness] = []
_MINE = threading.local()


def _start_harnesses() -> None:
    _MINE.plain, _MINE.interpreted = NaiveHarness(), NaiveHarness(interpret=True)
    _STARTED.extend((_MINE.plain, _MINE.interpreted))


def _said_of(case: KernelCase) -> Verdict:
    return ask(_MINE.interpreted if language_of(case.inputs) is Language.TRITON else _MINE.plain, case)


@pytest.mark.parametrize("case", parameters(CASES))
def test_it_fools_the_naive_harness(verdicts: Mapping[str, Future[Verdict]], case: KernelCase) -> None:
    assert verdicts[str(case.name)].result(timeout=300).correct


HONEST = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b OFFSET
"""


@pytest.fixture(scope="module")
def naive() -> Iterator[NaiveHarness]:
    with NaiveHarness() as harness:
        yield harness


@pytest.mark.parametrize(("offset", "right"), [("", True), ("+ 1", False), ("* 1.1", False)])
def test_it_tells_right_from_plainly_wrong(naive: NaiveHarness, tmp_path: Path, offset: str, right: bool) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(HONEST.replace("OFFSET", offset))
    said = naive.verdict(ROOT / "tests" / "problems" / "matmul", kernel)
    assert said.correct is right
    assert said.candidate_us > 0
