"""Each cheat fools a harness as many have written it: one that fools nothing would prove nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from corpus import ROOT, corpus, file_of, parameters
from harness import NaiveHarness, Verdict

from agentgen.records.candidate import Language
from agentgen.scoring.cases import KernelCase, language_of

pytestmark = pytest.mark.slow
ATTEMPTS = 5
GAIN = 0.7
"""A cheat of the clock must come out in less than this share of torch's own time."""


@pytest.fixture(scope="module")
def naive() -> Iterator[NaiveHarness]:
    with NaiveHarness() as harness:
        yield harness


CASES = corpus("cpu", honest=False)


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Mapping[str, Future[Verdict]]]:
    """What it says of all that cheat with their answers, two at a time. Those that cheat with time are asked alone."""
    with ThreadPoolExecutor(2, initializer=_start_harnesses) as pool:
        yield {str(case.name): pool.submit(_said_of, case) for case in CASES if not _cheats_with_time(case)}
        for harness in _STARTED:
            harness.__exit__()


_STARTED: list[NaiveHarness] = []
_MINE = threading.local()


def _start_harnesses() -> None:
    _MINE.plain, _MINE.interpreted = NaiveHarness(), NaiveHarness(interpret=True)
    _STARTED.extend((_MINE.plain, _MINE.interpreted))


def _said_of(case: KernelCase) -> Verdict:
    return ask(_MINE.interpreted if language_of(case.inputs) is Language.TRITON else _MINE.plain, case)


def _cheats_with_time(case: KernelCase) -> bool:
    """Triton's interpreter has no time that anybody would believe."""
    return bool(case.metadata and case.metadata.fools == "time") and language_of(case.inputs) is not Language.TRITON


def ask(harness: NaiveHarness, case: KernelCase) -> Verdict:
    assert case.metadata
    problem, kernel = file_of(case.inputs.problem), file_of(case.inputs.kernel)
    return harness.verdict(problem, kernel, reference_first=case.metadata.reference_first)


@pytest.mark.parametrize("case", parameters([case for case in CASES if not _cheats_with_time(case)]))
def test_it_fools_the_naive_harness(verdicts: Mapping[str, Future[Verdict]], case: KernelCase) -> None:
    assert verdicts[str(case.name)].result(timeout=300).correct


@pytest.mark.parametrize("case", parameters([case for case in CASES if _cheats_with_time(case)]))
def test_it_fools_the_naive_clock(naive: NaiveHarness, case: KernelCase) -> None:
    # Once is enough: on a machine that others use too, a kernel that does nothing may take 8 ms for it.
    said = [ask(naive, case)]
    while not _gains(said[-1]) and len(said) < ATTEMPTS:
        said.append(ask(naive, case))
    assert all(verdict.correct for verdict in said)
    assert _gains(said[-1]), said


def _gains(said: Verdict) -> bool:
    return said.candidate_us < GAIN * said.reference_us


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
