"""The cheats that only a GPU can decide fool the naive harness on one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from corpus import ask, corpus, parameters
from harness import NaiveHarness, Verdict

from agentgen.scoring.cases import KernelCase

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]
ATTEMPTS = 5
HARNESSES = 6
ELSEWHERE = {case.name for case in corpus("cpu", honest=False)}
CASES = [case for case in corpus("cuda", honest=False) if case.name not in ELSEWHERE]
TIMED = [case for case in CASES if case.metadata and case.metadata.fools == "time"]

_STARTED: list[NaiveHarness] = []
_MINE = threading.local()


def _start_harness() -> None:
    _MINE.naive = NaiveHarness("cuda:0")
    _STARTED.append(_MINE.naive)


def _said_of(case: KernelCase) -> Verdict:
    return ask(_MINE.naive, case)


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Mapping[str, Future[Verdict]]]:
    """What it says of all, some at a time: nobody looks at these times."""
    with ThreadPoolExecutor(HARNESSES, initializer=_start_harness) as pool:
        yield {str(case.name): pool.submit(_said_of, case) for case in CASES}
        for harness in _STARTED:
            harness.__exit__()


@pytest.mark.parametrize("case", parameters(CASES))
def test_it_fools_the_naive_harness(verdicts: Mapping[str, Future[Verdict]], case: KernelCase) -> None:
    assert verdicts[str(case.name)].result(timeout=300).correct


@pytest.fixture(scope="module")
def naive() -> Iterator[NaiveHarness]:
    with NaiveHarness("cuda:0") as harness:
        yield harness


@pytest.mark.parametrize("case", parameters(TIMED))
def test_it_fools_the_naive_clock(
    naive: NaiveHarness, verdicts: Mapping[str, Future[Verdict]], case: KernelCase
) -> None:
    for verdict in verdicts.values():
        verdict.exception(timeout=300)
    said = [ask(naive, case) for _ in range(ATTEMPTS)]
    assert any(verdict.correct and verdict.candidate_us < verdict.reference_us for verdict in said), said
