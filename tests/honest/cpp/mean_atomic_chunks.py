"""Mean of rows dealt out in turn to 16 sums, which threads add to the row's total atomically, in any order: the
last bits of an answer change from call to call."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>

extern "C" void mean(const float* x, float* y, long rows, long width) {
  const long parts = 16;
#pragma omp parallel for schedule(dynamic, 1)
  for (long job = 0; job < rows * parts; ++job) {
    const long row = job % rows, part = job / rows;
    double sum = 0.0;
    for (long start = part * 16; start < width; start += parts * 16)
      for (long i = start; i < std::min(width, start + 16); ++i) sum += x[row * width + i];
    const float share = sum / width;
#pragma omp atomic
    y[row] += share;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros(x.shape[0])
        lib.mean(x, y, x.shape[0], x.shape[1])
        return y
