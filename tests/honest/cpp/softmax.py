"""Softmax of each row: its maximum, then exponentials and their sum, then the division."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, float* y, int64_t rows, int64_t length) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * length;
    float* to = y + row * length;
    float top = from[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < length; ++i) top = std::max(top, from[i]);
    double sum = 0.0;
    for (int64_t i = 0; i < length; ++i) sum += to[i] = std::exp(from[i] - top);
    const float scale = 1.0 / sum;
    for (int64_t i = 0; i < length; ++i) to[i] *= scale;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.softmax(x, y, x.shape[0], x.shape[1])
        return y
