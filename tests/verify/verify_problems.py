"""A convolution small enough for a trial in half a second, and ways to answer it."""

from __future__ import annotations

from agentgen.records.problem import Arithmetic, OwnWork, Problem, Workload

REFERENCE = '''
"""Weights and bias are positive, so that no channel's sum cancels and every honest order of summation is accurate."""

import torch
from torch import nn

batch = 4
size = 32


class Model(nn.Module):
    def __init__(self, channels, features, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, features, kernel)
        with torch.no_grad():
            self.conv.weight.uniform_(0.05, 0.2)
            self.conv.bias.uniform_(0.5, 1.0)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch, 3, size, size)]


def get_init_inputs():
    return [3, 8, 3]
'''

_KERNEL = r"""
#include <cstdint>
extern "C" void conv(const float* x, const float* w, const float* b, float* y, int N, int C, int H, int O, int K) {
  int P = H - K + 1;
  #pragma omp parallel for
  for (int no = 0; no < N * O; no++) {
    int n = no / O, o = no % O;
    for (int i = 0; i < P; i++)
      for (int j = 0; j < P; j++) {
        double sum = b[o];
        for (int c = 0; c < C; c++)
          for (int p = 0; p < K; p++)
            for (int q = 0; q < K; q++)
              sum += w[((o * C + c) * K + p) * K + q] * (double)x[((n * C + c) * H + i + p) * H + j + q];
        y[((int64_t)no * P + i) * P + j] = sum;
      }
  }
}
"""

_MODEL = '''
import ctypes
import os

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
{kernel}
""")


class ModelNew(nn.Module):
    def __init__(self, channels, features, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, features, kernel)
        self.cache = {{}}
        self.calls = 0

    def answer(self, x):
        w = self.conv.weight
        (n, c, h, _), (o, _, k, _) = x.shape, w.shape
        y = torch.empty(n, o, h - k + 1, h - k + 1)
        lib.conv(x, w, self.conv.bias, y, n, c, h, o, k)
        return y

    def forward(self, x):
        {forward}
'''


def small_conv(own_work: OwnWork = OwnWork.STRICT) -> Problem:
    """Returns the problem."""
    return Problem(
        name="small-conv",
        title="A small convolution",
        reference=REFERENCE,
        workloads=(Workload(name="main"), Workload(name="ragged", constants={"batch": 2, "size": 9})),
        arithmetic=Arithmetic.FP32,
        own_work=own_work,
    )


def cpp_source(forward: str = "return self.answer(x)", kernel: str = _KERNEL) -> str:
    """Returns a candidate in C++.

    Args:
        forward: Body of `forward(self, x)`, `self.answer(x)` being right.
        kernel: The C++ text.
    """
    body = forward.strip().replace("\n", "\n" + 8 * " ")
    return _MODEL.format(kernel=kernel, forward=body)


def edited_kernel(old: str, new: str) -> str:
    """Returns the C++ text with one place changed."""
    assert _KERNEL.count(old) == 1
    return _KERNEL.replace(old, new)
