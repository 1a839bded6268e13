"""LayerNorm in two kernels with the rows' statistics in scratch memory that is kept and grown; answers never."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>

extern "C" void statistics(const float* x, double* scratch, long rows, long width, double eps) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    double sum = 0.0, squares = 0.0;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < width; ++i) sum += x[row * width + i];
    const double mean = sum / width;
#pragma omp simd reduction(+ : squares)
    for (long i = 0; i < width; ++i) squares += (x[row * width + i] - mean) * (x[row * width + i] - mean);
    scratch[2 * row] = mean;
    scratch[2 * row + 1] = 1.0 / std::sqrt(squares / width + eps);
  }
}

extern "C" void normalise(const float* x, const double* scratch, const float* weight, const float* bias, float* y,
                          long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row)
    for (long i = 0; i < width; ++i)
      y[row * width + i] = (x[row * width + i] - scratch[2 * row]) * scratch[2 * row + 1] * weight[i] + bias[i];
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scratch = torch.empty(0, dtype=torch.float64)

    def forward(self, x):
        rows, width = x.shape
        if self.scratch.numel() < 2 * rows:
            self.scratch = torch.empty(2 * rows, dtype=torch.float64)
        y = torch.empty_like(x)
        lib.statistics(x, self.scratch, rows, width, self.norm.eps)
        lib.normalise(x, self.scratch, self.norm.weight, self.norm.bias, y, rows, width)
        return y
