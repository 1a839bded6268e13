"""LayerNorm with passes for the mean, its error and the squares: float sums of 64 elements added up in double."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>

template <typename Value>
static double blocks(long width, Value value) {
  double sum = 0.0;
  for (long start = 0; start < width; start += 64) {
    const long stop = std::min(width, start + 64);
    float part = 0.0f;
#pragma omp simd reduction(+ : part)
    for (long i = start; i < stop; ++i) part += value(i);
    sum += part;
  }
  return sum;
}

extern "C" void norm(const float* x, const float* weight, const float* bias, float* y, long rows, long width,
                     double eps) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    const float mean = blocks(width, [&](long i) { return from[i]; }) / width;
    const float rest = blocks(width, [&](long i) { return from[i] - mean; }) / width;
    const double squares = blocks(width, [&](long i) { return (from[i] - mean - rest) * (from[i] - mean - rest); });
    const float scale = 1.0 / std::sqrt(squares / width + eps);
    for (long i = 0; i < width; ++i) y[row * width + i] = (from[i] - mean - rest) * scale * weight[i] + bias[i];
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        lib.norm(x, self.norm.weight, self.norm.bias, y, x.shape[0], x.shape[1], self.norm.eps)
        return y
