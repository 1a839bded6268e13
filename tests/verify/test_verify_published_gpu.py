"""What published kernels ran into with other judges, and how this one decides."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, OwnWork
from agentgen.records.run import Effort
from agentgen.records.trial import Outcome, Trial
from agentgen.store.catalog import load
from agentgen.workers.local import LocalJudge

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]

PROBLEMS = Path(__file__).parents[2] / "problems"

TORCH = """
import torch
from torch import nn
from torch.nn import functional as F

{reference}

class ModelNew(Model):
    def forward(self, x):
        {forward}
"""

CONV_FP32 = """
with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return super().forward(x)
"""
CONV_FP16 = """
conv = self.conv
        y = F.conv2d(x.half(), conv.weight.half(), conv.bias.half(), conv.stride, conv.padding)
        return y.float()
"""
LAYERNORM_FP64 = """
norm = self.norm
        y = F.layer_norm(x.double(), norm.normalized_shape, norm.weight.double(), norm.bias.double(), norm.eps)
        return y.float()
"""
SPLIT_MATMUL = '''
"""Each operand as a sum of two fp16 numbers, four products on tensor cores: more than TF32, less than fp32."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def split_matmul(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a_mask = (rows[:, None] < M) & (k[None, :] < K)
        b_mask = (k[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :], mask=b_mask, other=0.0)
        a_high, b_high = a.to(tl.float16), b.to(tl.float16)
        a_low = (a - a_high.to(tl.float32)).to(tl.float16)
        b_low = (b - b_high.to(tl.float32)).to(tl.float16)
        total = tl.dot(a_high, b_high, total)
        total = tl.dot(a_high, b_low, total)
        total = tl.dot(a_low, b_high, total)
        total = tl.dot(a_low, b_low, total)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, device=a.device)
        split_matmul[(triton.cdiv(M, 128), triton.cdiv(N, 128))](a, b, c, M, N, K, 128, 128, 32, num_warps=8)
        return c
'''


def judged(problem_name: str, forward: str, arithmetic: Arithmetic | None = None) -> Trial:
    """Judges a candidate that lets torch compute in its own way, where that is allowed."""
    problem = load(problem_name, PROBLEMS).model_copy(update={"own_work": OwnWork.LIBRARY, "neighbours": ()})
    source = TORCH.format(reference=problem.reference, forward=forward.strip())
    with LocalJudge(problem, "cuda:0", arithmetic or problem.arithmetic, Effort.QUICK) as judge:
        return judge.evaluate(Candidate(source=source, language=Language.CUDA), timing=False)


def told(trial: Trial) -> str:
    rows = [
        f"{row.workload} {row.family} {row.relative_l2} gate {row.gate} torch {row.torch_relative_l2}"
        for row in trial.accuracy
    ]
    print(trial.outcome, trial.accuracy_class, trial.reasons, *rows[-11:], sep="\n  ")  # noqa: T201
    return "; ".join(trial.reasons)


def test_conv2d_in_true_fp32_is_accepted_where_torch_answers_in_tf32() -> None:
    trial = judged("conv2d", CONV_FP32)
    assert trial.outcome is Outcome.PASSED, told(trial)
    told(trial)
    assert trial.accuracy_class is Arithmetic.FP32
    (row,) = [row for row in trial.accuracy if (row.workload, row.family) == ("main", "normal")]
    assert row.relative_l2
    assert row.relative_l2 < 2e-6 < 1e-4 < (row.torch_relative_l2 or 0)


def test_layernorm_in_float64_is_accepted_where_torch_itself_is_off() -> None:
    trial = judged("layernorm_shifted", LAYERNORM_FP64)
    assert trial.outcome is Outcome.PASSED, told(trial)
    told(trial)


def test_conv2d_on_fp16_tensor_cores_is_of_tf32_class() -> None:
    trial = judged("conv2d", CONV_FP16)
    assert trial.outcome is Outcome.PASSED, told(trial)
    told(trial)
    assert trial.accuracy_class is Arithmetic.TF32


def test_conv2d_on_fp16_tensor_cores_is_refused_as_fp32() -> None:
    trial = judged("conv2d", CONV_FP16, Arithmetic.FP32)
    assert trial.outcome is Outcome.WRONG_VALUES
    assert "computes in less than fp32" in told(trial)


def test_a_matmul_of_four_fp16_products_is_refused_as_fp32() -> None:
    # Only at its main size: at others it is refused before, where inputs of 1e-3 leave fp16's range.
    whole = load("matmul", PROBLEMS)
    problem = whole.model_copy(update={"workloads": (whole.main,), "neighbours": ()})
    with LocalJudge(problem, "cuda:0", Arithmetic.FP32, Effort.QUICK) as judge:
        trial = judge.evaluate(Candidate(source=SPLIT_MATMUL, language=Language.TRITON), timing=False)
    assert trial.outcome is Outcome.WRONG_VALUES
    told(trial)
    worst = max(row.relative_l2 or 0 for row in trial.accuracy if row.family == "normal" and row.workload == "main")
    assert 2e-6 < worst < 1e-4
