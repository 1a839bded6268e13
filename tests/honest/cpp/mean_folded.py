"""Mean by pairwise summation in float: the second half of a row is added to the first, in scratch memory, and again."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <vector>

extern "C" void mean(const float* x, float* y, long rows, long width) {
#pragma omp parallel
  {
    std::vector<float> folded(width / 2 + 1);
#pragma omp for
    for (long row = 0; row < rows; ++row) {
      const float* from = x + row * width;
      for (long left = width; left > 1;) {
        const long half = (left + 1) / 2;
        for (long i = 0; i < left - half; ++i) folded[i] = from[i] + from[i + half];
        if (left % 2) folded[half - 1] = from[half - 1];
        from = folded.data();
        left = half;
      }
      y[row] = from[0] / width;
    }
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0])
        lib.mean(x, y, x.shape[0], x.shape[1])
        return y
