"""Attacks on the judge of a GPU: on its gate, its memory, its baseline, its second clock, its record of kernels.

Each candidate is right; what it does besides must be found, and the judge must go on. Names that the screen knows are
hidden from it, because here the deeper defences are meant.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.records.run import Effort
from agentgen.records.trial import Outcome, Trial
from agentgen.workers.local import LocalJudge

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]

TANH = Problem(
    name="tanh",
    title="tanh of 128 MiB",
    reference="""
import torch
from torch import nn

rows = 8192
width = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
""",
    workloads=(Workload(name="main"), Workload(name="tiny", constants={"rows": 3, "width": 7})),
    arithmetic=Arithmetic.FP32,
)
MATMUL = TANH.model_copy(
    update={
        "name": "square",
        "reference": TANH.reference.replace("torch.tanh(x)", "torch.matmul(x, x)").replace(
            "rows, width)", "rows, rows)"
        ),
        "workloads": (
            Workload(name="main", constants={"rows": 2048}),
            Workload(name="tiny", constants={"rows": 8}),
        ),
    }
)
CANDIDATE = '''
import ctypes
import gc
import glob
import os
import torch
from torch import nn
from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void tanh_of(const float* x, float* y, long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(x[i]);
}
extern "C" __global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
}
extern "C" __global__ void decoy(float* y) {}
""")


def hidden(owner, *parts):
    return getattr(owner, "".join(parts))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.kept = []
        self.side = torch.cuda.Stream()
        INIT

    def work(self, x):
        y = torch.empty_like(x)
        kernels.tanh_of[(x.numel() + 255) // 256, 256](x, y, x.numel())
        return y

    def forward(self, x):
        self.calls += 1
        FORWARD
'''


def candidate(forward: str = "return self.work(x)", init: str = "pass") -> Candidate:
    def indented(text: str) -> str:
        return text.strip().replace("\n", "\n        ")

    source = CANDIDATE.replace("FORWARD", indented(forward)).replace("INIT", indented(init))
    return Candidate(source=source, language=Language.CUDA)


@pytest.fixture(scope="module")
def judge() -> Iterator[LocalJudge]:
    with LocalJudge(TANH, "cuda:0", TANH.arithmetic, Effort.QUICK) as judge:
        yield judge


@pytest.fixture(scope="module")
def judge_of_matmul() -> Iterator[LocalJudge]:
    with LocalJudge(MATMUL, "cuda:0", MATMUL.arithmetic, Effort.QUICK) as judge:
        yield judge


def require_honest_passes(judge: LocalJudge) -> Trial:
    trial = judge.evaluate(candidate())
    assert trial.outcome is Outcome.PASSED, trial.reasons
    return trial


def test_the_honest_one_passes_and_its_kernels_are_its_own(judge: LocalJudge) -> None:
    trial = require_honest_passes(judge)
    evidence = {check.name: check.evidence for check in trial.checks}
    assert "100% of device time in 1 kernels of its own" in evidence["own kernels"]
    assert all(
        check.passed for check in trial.checks if check.name in {"instruments agree", "work ends with the window"}
    )


BEFORE_THE_GATE = """
with torch.cuda.stream(self.side):
    y = self.work(x)
torch.cuda.current_stream().wait_stream(self.side)
return y
"""
FORKED_AND_JOINED = """
self.side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(self.side):
    y = self.work(x)
torch.cuda.current_stream().wait_stream(self.side)
return y
"""


def test_work_on_a_stream_that_does_not_wait_for_the_gate_has_the_wrong_inputs(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(BEFORE_THE_GATE))
    assert trial.outcome is Outcome.WRONG_VALUES, trial.reasons
    assert any(check.name == "values while timed" and check.passed is False for check in trial.checks)


def test_a_stream_that_is_forked_and_joined_is_honest(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(FORKED_AND_JOINED))
    assert trial.outcome is Outcome.PASSED, trial.reasons
    honest = require_honest_passes(judge)
    assert trial.timing
    assert honest.timing
    assert trial.timing.median_us > 0.9 * honest.timing.median_us


MARK_EARLY = """
if self.calls == 1:
    for gate in hidden(gc, "get_", "objects")():
        if type(gate).__name__ == "Gate":
            close, mark = gate.close_behind, gate.mark
            gate.close_behind = lambda shot: (close(shot), mark(shot))
            gate.mark = lambda shot: None
return self.work(x)
"""


def test_a_mark_in_front_of_the_work_finds_no_outputs(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(MARK_EARLY))
    assert trial.outcome in {Outcome.WRONG_VALUES, Outcome.CHEATED}, trial.reasons
    assert {check.name for check in trial.checks if check.passed is False} & {"values while timed", "clocks agree"}
    require_honest_passes(judge)


OPEN_THE_GATE = """
if self.calls == 1:
    for gate in hidden(gc, "get_", "objects")():
        if type(gate).__name__ == "Gate":
            def opened(shot, close=gate.close_behind, words=ctypes.addressof(gate._host)):
                close(shot)
                ctypes.c_int.from_address(words).value = shot
            gate.close_behind = opened
return self.work(x)
"""


def test_a_gate_that_the_guest_opens_itself_lets_through_what_was_not_asked(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(OPEN_THE_GATE))
    assert trial.outcome in {Outcome.WRONG_VALUES, Outcome.CHEATED}, trial.reasons
    require_honest_passes(judge)


LEAVE_RUNNING = """
y = self.work(x)
self.side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(self.side):
    kernels.spin[1, 1](4_000_000)
return y
"""


def test_a_kernel_left_running_is_seen(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(LEAVE_RUNNING))
    assert trial.outcome is Outcome.CHEATED, trial.reasons
    assert {check.name for check in trial.checks if check.passed is False} & {
        "work ends with the window",
        "baseline undisturbed",
        "instruments agree",
    }
    require_honest_passes(judge)


TAKE_ALL = """
if self.calls == 1:
    for size in (1 << 32, 1 << 28, 1 << 21):
        try:
            while True:
                self.kept.append(torch.empty(size, dtype=torch.uint8, device=x.device))
        except torch.OutOfMemoryError:
            pass
return self.work(x)
"""


def test_a_guest_that_takes_all_memory_starves_nobody_but_itself(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(TAKE_ALL))
    assert trial.outcome is Outcome.OUT_OF_MEMORY, trial.reasons
    require_honest_passes(judge)


REPLAY = """
key = x.data_ptr()
if not hasattr(self, "answers"):
    self.answers = {}
if key not in self.answers or self.calls < 60:
    self.answers[key] = self.work(x)
return self.answers[key].clone()
"""


def test_an_old_output_is_not_this_windows(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(REPLAY))
    assert trial.outcome in {Outcome.WRONG_VALUES, Outcome.CHEATED}, trial.reasons


PATCH_EVENTS = """
event = hidden(torch.cuda, "Ev", "ent")
real = event.elapsed_time
setattr(event, "elapsed" + "_time", lambda first, last: 0.5 * real(first, last))
"""


def test_patched_event_times_disagree_with_the_gate(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(init=PATCH_EVENTS))
    assert trial.outcome is Outcome.CHEATED, trial.reasons
    assert any("clock differs" in reason for reason in trial.reasons)


DEFER = """
y = torch.empty_like(x)
self.side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(self.side):
    kernels.spin[1, 1](2_000_000)
    kernels.tanh_of[(x.numel() + 255) // 256, 256](x, y, x.numel())
self.kept.append(y)
return y
"""


def test_work_put_off_to_another_stream_is_not_in_the_outputs(judge: LocalJudge) -> None:
    trial = judge.evaluate(candidate(DEFER))
    assert trial.outcome is Outcome.WRONG_VALUES, trial.reasons


CUBLAS = """
if self.calls == 1:
    folder = os.path.join(os.path.dirname(torch.__file__), "..", "nvidia")
    (path, *_) = glob.glob(folder + "/cu*/lib/libcublas.so.1*") + glob.glob(folder + "/cublas/lib/libcublas.so.1*")
    self.blas = hidden(ctypes, "CD", "LL")(path)
    self.handle = ctypes.c_void_p()
    assert self.blas.cublasCreate_v2(ctypes.byref(self.handle)) == 0
n = x.shape[0]
y = torch.empty_like(x)
kernels.decoy[1, 1](y)
stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
assert self.blas.cublasSetStream_v2(self.handle, stream) == 0
one, zero = ctypes.c_float(1), ctypes.c_float(0)
a = ctypes.c_void_p(x.data_ptr())
assert self.blas.cublasSgemm_v2(self.handle, 0, 0, n, n, n, ctypes.byref(one), a, n, a, n, ctypes.byref(zero),
                                ctypes.c_void_p(y.data_ptr()), n) == 0
return y
"""


def test_cublas_past_the_dispatcher_is_somebody_elses_kernel(judge_of_matmul: LocalJudge) -> None:
    trial = judge_of_matmul.evaluate(candidate(CUBLAS))
    assert trial.outcome is Outcome.CHEATED, (trial.reasons, trial.log)
    assert any("kernels that the source does not define" in reason for reason in trial.reasons)
