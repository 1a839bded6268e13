"""Softmax whose maximum and sum come from one pass: the sum is scaled down whenever a block has a new maximum."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>

extern "C" void softmax(const float* x, float* y, long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float top = -INFINITY;
    double sum = 0.0;
    for (long start = 0; start < width; start += 128) {
      const long stop = std::min(width, start + 128);
      float highest = top, part = 0.0f;
      for (long i = start; i < stop; ++i) highest = std::max(highest, from[i]);
      for (long i = start; i < stop; ++i) part += std::exp(from[i] - highest);
      sum = sum * std::exp(top - highest) + part;
      top = highest;
    }
    for (long i = 0; i < width; ++i) y[row * width + i] = std::exp(from[i] - top) / (float)sum;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.softmax(x, y, x.shape[0], x.shape[1])
        return y
