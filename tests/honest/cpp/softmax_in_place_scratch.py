"""Softmax in place on scratch memory of its own: torch copies the input there, three kernels rewrite it, torch copies
the answer out into fresh memory."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>

extern "C" void subtract_maximum(float* x, long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    const float top = *std::max_element(x + row * width, x + (row + 1) * width);
    for (long i = row * width; i < (row + 1) * width; ++i) x[i] -= top;
  }
}

extern "C" void exponential(float* x, long count) {
#pragma omp parallel for
  for (long i = 0; i < count; ++i) x[i] = std::exp(x[i]);
}

extern "C" void divide_by_sum(float* x, long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    double sum = 0.0;
    for (long i = row * width; i < (row + 1) * width; ++i) sum += x[i];
    for (long i = row * width; i < (row + 1) * width; ++i) x[i] /= sum;
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, x):
        rows, width = x.shape
        if self.scratch is None or self.scratch.shape != x.shape:
            self.scratch = torch.empty_like(x)
        self.scratch.copy_(x)
        lib.subtract_maximum(self.scratch, rows, width)
        lib.exponential(self.scratch, x.numel())
        lib.divide_by_sum(self.scratch, rows, width)
        return self.scratch.clone()
