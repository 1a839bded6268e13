"""relu(x) * sigmoid(x) with a table of sigmoids in a buffer that is not saved, and a Taylor step to the next entry."""

import math

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>

extern "C" void clip(const float* x, const double* table, float* y, long count) {
#pragma omp parallel for
  for (long i = 0; i < count; ++i) {
    const double value = x[i];
    if (!(value > 0.0)) {
      y[i] = value <= 0.0 ? 0.0f : x[i];  // a NaN stays one
    } else if (value >= 40.0) {
      y[i] = x[i];
    } else {
      const int near = (int)(value * 64.0 + 0.5);
      const double s = table[near], slope = s * (1.0 - s), h = value - near / 64.0;
      const double bend = slope * (1.0 - 2.0 * s), third = slope * (1.0 - 6.0 * slope);
      y[i] = value * (s + h * (slope + h * (bend / 2 + h * third / 6)));
    }
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        entries = [1.0 / (1.0 + math.exp(-i / 64)) for i in range(64 * 40 + 1)]
        self.register_buffer("table", torch.tensor(entries, dtype=torch.float64), persistent=False)

    def forward(self, x):
        y = torch.empty_like(x)
        lib.clip(x, self.table, y, x.numel())
        return y
