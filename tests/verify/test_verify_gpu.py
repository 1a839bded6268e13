"""The judge on a GPU: its gate against the guest's events, CUDA and Triton, and memory that two processes share.

Kernels accumulate in double and weights are positive, so that no sum cancels and each verdict is clear.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch
from verify_problems import REFERENCE, small_conv

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, OwnWork, Problem, Workload
from agentgen.records.run import Effort
from agentgen.records.trial import Clock, Outcome, Trial
from agentgen.sandbox.forked import ProcessGuest
from agentgen.sandbox.process import ProcessSandbox
from agentgen.verify.architecture import architecture
from agentgen.verify.clock import Page
from agentgen.verify.shared import Region
from agentgen.workers.local import LocalJudge

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]

DEVICE = "cuda:0"
CONV = '''
import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void conv(const float* x, const float* w, const float* b, float* y,
                                int N, int C, int H, int O, int K) {
  int P = H - K + 1;
  long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= (long long)N * O * P * P) return;
  int j = at % P, i = at / P % P, o = at / ((long long)P * P) % O, n = at / ((long long)P * P * O);
  double sum = b[o];
  for (int c = 0; c < C; c++)
    for (int p = 0; p < K; p++)
      for (int q = 0; q < K; q++)
        sum += (double)w[((o * C + c) * K + p) * K + q] * x[((long long)(n * C + c) * H + i + p) * H + j + q];
  y[at] = sum;
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels, features, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, features, kernel)

    def forward(self, x):
        w = self.conv.weight
        (n, c, h, _), (o, _, k, _) = x.shape, w.shape
        y = torch.empty(n, o, h - k + 1, h - k + 1, device=x.device)
        kernels.conv[(y.numel() + 255) // 256, 256](x, w, self.conv.bias, y, n, c, h, o, k)
        return y
'''
SOFTMAX = """
import torch
from torch import nn

rows = 2048
width = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
"""
TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < n, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
SCALE = """
from torch import nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2
"""


def edited(source: str, old: str, new: str) -> str:
    assert source.count(old) == 1
    return source.replace(old, new)


def conv_problem(own_work: OwnWork) -> Problem:
    large = Workload(name="main", constants={"batch": 64, "size": 128})
    return small_conv(own_work).model_copy(update={"workloads": (large, *small_conv().workloads[1:])})


def softmax_problem() -> Problem:
    return Problem(
        name="small-softmax",
        title="A small softmax",
        reference=SOFTMAX,
        workloads=(Workload(name="main"), Workload(name="ragged", constants={"rows": 3, "width": 1031})),
        arithmetic=Arithmetic.FP32,
    )


def judge_of(problem: Problem) -> LocalJudge:
    return LocalJudge(problem, DEVICE, Arithmetic.FP32, Effort.QUICK)


@pytest.fixture(scope="module")
def conv() -> Iterator[LocalJudge]:
    with judge_of(conv_problem(OwnWork.STRICT)) as judge:
        yield judge


@pytest.fixture(scope="module")
def softmax() -> Iterator[LocalJudge]:
    with judge_of(softmax_problem()) as judge:
        yield judge


def evaluated(judge: LocalJudge, source: str, language: Language, *, timing: bool = False) -> Trial:
    return judge.evaluate(Candidate(source=source, language=language), timing=timing)


def passed_and_timed(trial: Trial) -> None:
    assert trial.outcome is Outcome.PASSED, (trial.reasons, trial.log)
    timing = trial.timing
    assert timing
    assert timing.clock is Clock.GATE
    assert timing.guest_clock_us == pytest.approx(timing.median_us, rel=0.10)
    assert timing.low_us <= timing.median_us <= timing.high_us
    assert trial.speedup
    assert trial.roofline_fraction
    assert (
        0 < trial.roofline_fraction < 1.2
    )  # outputs that stay in the cache are read back faster than the bound has it
    assert "baseline undisturbed" in [check.name for check in trial.checks]


# ---- CUDA ------------------------------------------------------------------------------------------------------------


def test_an_honest_cuda_kernel_passes_and_both_clocks_agree(conv: LocalJudge) -> None:
    trial = evaluated(conv, CONV, Language.CUDA, timing=True)
    passed_and_timed(trial)
    (build,) = trial.build
    assert build.kernel == "conv"
    assert build.registers


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("double sum = b[o];", "double sum = 0;", "zeros"),
        ("p < K; p++", "p < K - 1; p++", "normal"),
        ("y[at] = sum;", "y[at] = at == 0 ? sum * 1.001 : sum;", "normal"),
        ("(long long)N * O * P * P) return", "(long long)N * O * P * P - 1) return", "normal"),
    ],
    ids=["bias", "filter", "one element", "the last element"],
)
def test_wrong_cuda_is_refused(conv: LocalJudge, old: str, new: str, said: str) -> None:
    trial = evaluated(conv, edited(CONV, old, new), Language.CUDA)
    assert trial.outcome is Outcome.WRONG_VALUES, trial.reasons
    assert said in "\n".join(trial.reasons)


def test_an_illegal_access_is_a_crash_and_the_judge_goes_on(conv: LocalJudge) -> None:
    crash = evaluated(conv, edited(CONV, "y[at] = sum;", "*(float*)8 = sum;"), Language.CUDA)
    assert crash.outcome is Outcome.CRASHED, crash.reasons
    after = evaluated(conv, CONV, Language.CUDA)
    assert after.outcome is Outcome.PASSED, after.reasons


def test_cuda_that_does_not_compile(conv: LocalJudge) -> None:
    trial = evaluated(conv, edited(CONV, "double sum = b[o];", "double sum = bias[o];"), Language.CUDA)
    assert trial.outcome is Outcome.BUILD_FAILED
    assert "bias" in trial.reasons[0]


def test_a_library_is_no_own_work(conv: LocalJudge) -> None:
    trial = evaluated(conv, edited(REFERENCE, "class Model(", "class ModelNew("), Language.CUDA)
    assert trial.outcome is Outcome.CHEATED
    assert "convolution" in trial.reasons[0]


def test_the_same_kernel_is_as_fast_as_itself() -> None:
    with judge_of(conv_problem(OwnWork.LIBRARY)) as judge:
        trial = evaluated(judge, edited(REFERENCE, "class Model(", "class ModelNew("), Language.CUDA, timing=True)
    passed_and_timed(trial)
    assert trial.speedup
    assert 0.97 < trial.speedup.low <= trial.speedup.high < 1.03
    assert not trial.speedup.faster


def test_a_reference_that_waits_for_the_device_does_not_wait_for_the_gate() -> None:
    waits = edited(SOFTMAX, "torch.softmax(x, dim=1)", "torch.softmax(x, dim=1) * x.shape[0] / len(x.sum(1).tolist())")
    start = time.perf_counter()
    with judge_of(softmax_problem().model_copy(update={"reference": waits})) as judge:
        eager_us = judge.target().baselines_us["eager"]
        opened_s = time.perf_counter() - start
        trial = evaluated(judge, TRITON, Language.TRITON, timing=True)
    assert opened_s < 30.0  # one window took as long
    assert 10 < eager_us < 10_000
    assert trial.outcome is Outcome.PASSED, trial.reasons
    assert trial.speedup
    assert trial.speedup.faster


# ---- Triton ----------------------------------------------------------------------------------------------------------


def test_an_honest_triton_kernel_passes_and_both_clocks_agree(softmax: LocalJudge) -> None:
    passed_and_timed(evaluated(softmax, TRITON, Language.TRITON, timing=True))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.exp(value - tl.max(value, 0))", "tl.exp(value)"),
        ('other=-float("inf")', "other=0.0"),
        ("tl.exp(value - tl.max(value, 0))", "tl.exp((value - tl.max(value, 0)).to(tl.float16).to(tl.float32))"),
    ],
    ids=["no maximum", "padding counts", "half precision"],
)
def test_wrong_triton_is_refused(softmax: LocalJudge, old: str, new: str) -> None:
    trial = evaluated(softmax, edited(TRITON, old, new), Language.TRITON)
    assert trial.outcome is Outcome.WRONG_VALUES, trial.reasons


def test_a_kernel_ahead_of_torch_that_is_wrong_once_in_300_calls() -> None:
    in_steps = edited(SOFTMAX, "torch.softmax(x, dim=1)", "(p := torch.exp(x - x.amax(1, True))) / p.sum(1, True)")
    seldom = edited(
        TRITON, "        return y", "        self.calls += 1\n        return y if self.calls % 300 else y.mul_(1.01)"
    )
    seldom = edited(seldom, "class ModelNew(nn.Module):\n", "class ModelNew(nn.Module):\n    calls = 0\n\n")
    with judge_of(softmax_problem().model_copy(update={"reference": in_steps})) as judge:
        honest = evaluated(judge, TRITON, Language.TRITON, timing=True)
        wrong = evaluated(judge, seldom, Language.TRITON, timing=True)
    passed_and_timed(honest)
    (same,) = (check.evidence for check in honest.checks if check.name == "same answer")
    assert int(same.split()[0].replace(",", "")) > 300, same
    assert same.endswith("gave the same bits (looked 2 times)")
    assert wrong.outcome in (Outcome.NONDETERMINISTIC, Outcome.WRONG_VALUES), wrong.reasons


def test_triton_that_does_not_compile(softmax: LocalJudge) -> None:
    trial = evaluated(softmax, edited(TRITON, "tl.sum(power, 0)", "tl.sum(powers, 0)"), Language.TRITON)
    assert trial.outcome is Outcome.BUILD_FAILED, trial.reasons


# ---- shared memory ---------------------------------------------------------------------------------------------------


@pytest.fixture
def guest() -> Iterator[ProcessGuest]:
    sandbox = ProcessSandbox(DEVICE, architecture(DEVICE))
    yield sandbox.start()
    sandbox.close()


@pytest.fixture
def page() -> Iterator[Page]:
    one = Page()
    yield one
    one.close()


def test_judge_and_guest_write_to_the_same_device_memory(guest: ProcessGuest, page: Page) -> None:
    region = Region("io", [((3, 1000), torch.float32, None), ((3, 1000), torch.float32, None)], DEVICE)
    x, y = region.tensors
    ask = asker(guest)
    assert ask({"do": "load", "source": SCALE, "arithmetic": "fp32"}, page.fd)["ok"]
    assert ask({"do": "construct", "workload": "main", "init_args": [], "seed": 1})["ok"]
    assert ask(region.message(), region.fd)["ok"]
    window = {"do": "window", "workload": "main", "region": "io", "inputs": [[0]], "outputs": [[1]], "calls": 1}
    for round_ in range(3):
        x.copy_(torch.arange(3000.0, device=DEVICE).view(3, 1000) + round_)
        y.fill_(-1)
        torch.cuda.synchronize()
        answer = ask(
            {**window, "shot": 0, "record": False, "hold": False, "arm": False, "sample": False, "layouts": [None]}
        )
        assert answer["ok"], answer
        assert torch.equal(y, 2 * x)
    del x, y
    region.close()


def asker(guest: ProcessGuest) -> Callable[..., dict[str, object]]:
    def ask(message: dict[str, object], *fds: int) -> dict[str, object]:
        guest.post(message, fds)
        return guest.answer(60)

    return ask
