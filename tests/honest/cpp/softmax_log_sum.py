"""Softmax as exp(x - log(sum of exponentials)): no division, and the sum's logarithm in double."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <memory>

extern "C" void softmax(const float* x, float* y, long rows, long width) {
  const std::unique_ptr<double[]> logs(new double[rows]);
#pragma omp parallel
  {
#pragma omp for
    for (long row = 0; row < rows; ++row) {
      const float *from = x + row * width, top = *std::max_element(from, from + width);
      double sum = 0.0;
      for (long i = 0; i < width; ++i) sum += std::exp(from[i] - top);
      logs[row] = top + std::log(sum);
    }
#pragma omp for
    for (long i = 0; i < rows * width; ++i) y[i] = std::exp((float)(x[i] - logs[i / width]));
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.softmax(x, y, x.shape[0], x.shape[1])
        return y
