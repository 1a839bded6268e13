"""Kernels that hang, trap or want too much memory on a GPU: each has its outcome, and the same judge accepts the next
honest candidate. So does it once others, who held the memory, have gone.

An illegal access is in test_verify_gpu.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
import torch
from test_verify_gpu import CONV, DEVICE, conv_problem, edited

from agentgen.errors import DeviceLost
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, OwnWork
from agentgen.records.run import Effort
from agentgen.records.trial import Outcome, Trial
from agentgen.verify import session
from agentgen.verify.evaluation import evaluate
from agentgen.verify.judge import Judge

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]

ONCE_TIMED = """calls = 0


class ModelNew(ModelNew):
    def forward(self, x):
        global calls
        calls += 1
        y = super().forward(x)
        if calls > 250:
            super().forward(x[:0])
        return y
"""
"""With an empty input, for which the kernel below never ends."""

SLEEP = 'asm volatile("nanosleep.u32 1000;")'
"""What a loop that is to stay does: a variable that is volatile does not keep NVRTC from removing it."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    one = Judge(conv_problem(OwnWork.STRICT), DEVICE, Arithmetic.FP32, Effort.QUICK)
    yield one
    one.close()


@pytest.fixture(autouse=True)
def _the_next_is_accepted(judge: Judge) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    after = evaluated(judge, CONV)
    assert after.outcome is Outcome.PASSED, after.reasons


def evaluated(judge: Judge, source: str, *, timing: bool = False) -> Trial:
    candidate = Candidate(source=source, language=Language.CUDA)
    return evaluate(judge, candidate, lambda _: None, timing=timing)


def test_a_kernel_that_never_ends(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(session, "FIRST_CALL_S", 5.0)
        trial = evaluated(judge, edited(CONV, "double sum = b[o];", f"double sum = b[o];\n  while (N >= 0) {SLEEP};"))
    assert trial.outcome is Outcome.TIMED_OUT, trial.reasons


def test_a_kernel_that_never_ends_once_it_is_timed(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(session, "CALLS_S", 10.0)
        patch.setattr(session, "FIRST_CALL_S", 10.0)  # of a race's calls the first are not timed
        kernel = edited(CONV, "  int P = H - K + 1;", f"  int P = H - K + 1;\n  while (!N) {SLEEP};")
        kernel = edited(kernel, "(y.numel() + 255) // 256, 256", "(y.numel() + 255) // 256 or 1, 256")
        trial = evaluated(judge, f"{kernel}\n{ONCE_TIMED}", timing=True)
    assert trial.outcome is Outcome.TIMED_OUT, trial.reasons


def test_a_trap_as_of_an_assertion(judge: Judge) -> None:
    trial = evaluated(judge, edited(CONV, "y[at] = sum;", 'if (at == 7) asm volatile("trap;");\n  y[at] = sum;'))
    assert trial.outcome is Outcome.CRASHED, trial.reasons


HOLDER = """
import sys, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device=sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""
"""Another program that uses the GPU."""

WANTS = """

class ModelNew(ModelNew):
    def forward(self, x):
        torch.empty(%d, dtype=torch.uint8, device=x.device)
        return super().forward(x)
"""


@contextmanager
def held_by_another(nbytes: int) -> Generator[None]:
    command = [sys.executable, "-c", HOLDER, str(nbytes), DEVICE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()


def test_memory_that_another_program_holds_is_no_fault_of_a_candidate(judge: Judge) -> None:
    tenth = torch.cuda.mem_get_info(DEVICE)[1] // 10
    source = CONV + WANTS % (2 * tenth)  # of several guests at once
    with held_by_another(9 * tenth), pytest.raises(DeviceLost, match="no memory for a candidate, and others hold"):
        evaluated(judge, source)
    alone = evaluated(judge, source)
    assert alone.outcome is Outcome.PASSED, alone.reasons


def test_more_memory_than_there_is(judge: Judge) -> None:
    trial = evaluated(judge, CONV + WANTS % (2 * torch.cuda.mem_get_info(DEVICE)[1]))
    assert trial.outcome is Outcome.OUT_OF_MEMORY, trial.reasons
