"""Softmax whose exponential takes 2^(i/64) from a table of constants made in __init__, times a short polynomial."""

import math

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

extern "C" void softmax(const float* x, const double* table, float* y, int64_t rows, int64_t width) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float *to = y + row * width, top = from[0];
    for (int64_t i = 0; i < width; ++i) top = std::max(top, from[i]);
    double sum = 0.0;
    for (int64_t i = 0; i < width; ++i) {
      const double scaled = std::max((double)from[i] - top, -600.0) * 92.33248261893243;  // 64 / log(2)
      const double whole = std::rint(scaled), rest = (scaled - whole) * 0.010830424696249145;
      const int64_t n = (int64_t)whole;
      const uint64_t bits = (uint64_t)((n >> 6) + 1023) << 52;
      double power;
      std::memcpy(&power, &bits, 8);
      power *= table[n & 63] * (1.0 + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6))));
      to[i] = power;
      sum += power;
    }
    const float scale = 1.0 / sum;
    for (int64_t i = 0; i < width; ++i) to[i] *= scale;
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.tensor([math.exp2(i / 64) for i in range(64)], dtype=torch.float64)

    def forward(self, x):
        y = torch.empty_like(x)
        lib.softmax(x, self.table, y, x.shape[0], x.shape[1])
        return y
