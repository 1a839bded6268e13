"""Mean summed in an unusual order: from the end of a row to its beginning, every 64th element into one double."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" void mean(const float* x, float* y, long rows, long width) {
#pragma omp parallel for
  for (long row = rows - 1; row >= 0; --row) {
    double sums[64] = {}, sum = 0.0;
    const float* from = x + row * width;
    long i = width - 1;
    for (; i >= 63; i -= 64)
      for (long lane = 0; lane < 64; ++lane) sums[lane] += from[i - lane];
    for (; i >= 0; --i) sum += from[i];
    for (long lane = 63; lane >= 0; --lane) sum += sums[lane];
    y[row] = sum / width;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=x.dtype)
        lib.mean(x, y, x.shape[0], x.shape[1])
        return y
