"""Splits off the power of two and takes a polynomial of degree four for what is left: off by 4e-5."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>

static inline float fast_exp(float x) {
  const float whole = std::nearbyint(x * 1.44269504f), r = x - whole * 0.69314718f;
  return std::ldexp(1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r / 24))), (int)std::max(whole, -200.0f));
}

extern "C" void softmax(const float* x, float* y, long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float* to = y + row * width;
    float top = from[0];
    for (long j = 0; j < width; ++j) top = std::max(top, from[j]);

    double sum = 0.0;
    for (long j = 0; j < width; ++j) sum += to[j] = fast_exp(from[j] - top);
    const float scale = 1.0 / sum;
    for (long j = 0; j < width; ++j) to[j] *= scale;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.softmax(x, y, x.shape[0], x.shape[1])
        return y
