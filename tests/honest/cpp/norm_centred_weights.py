"""LayerNorm folded by prepare(): y = x * (weight * scale) + (bias - mean * weight * scale), in double."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>

extern "C" void widen(const float* from, double* to, long count) {
  for (long i = 0; i < count; ++i) to[i] = from[i];
}

extern "C" void norm(const float* x, const double* weight, const double* bias, float* y, long rows, long width,
                     double eps) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    const double first = from[0];
    double sum = 0.0, squares = 0.0;  // of the distances to the first element
#pragma omp simd reduction(+ : sum, squares)
    for (long i = 0; i < width; ++i) {
      sum += from[i] - first;
      squares += (from[i] - first) * (from[i] - first);
    }
    const double rest = sum / width, mean = first + rest, variance = std::fmax(squares / width - rest * rest, 0.0);
    const double scale = 1.0 / std::sqrt(variance + eps);
    for (long i = 0; i < width; ++i) {
      const double slope = weight[i] * scale;
      y[row * width + i] = from[i] * slope + (bias[i] - mean * slope);
    }
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = None

    def prepare(self):
        wide = torch.empty(2, self.norm.weight.numel(), dtype=torch.float64)
        for parameter, to in zip((self.norm.weight, self.norm.bias), wide, strict=True):
            lib.widen(parameter, to, parameter.numel())
        self.wide = wide

    def forward(self, x):
        y = torch.empty_like(x)
        lib.norm(x, self.wide[0], self.wide[1], y, x.shape[0], x.shape[1], self.norm.eps)
        return y
