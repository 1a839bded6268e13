"""Never writes the last element of the matrix, as a loop that ends one too early does. It is zero, and should be
1e-4.
"""

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
    float* to = y + row * width;
    float top = from[0];
    for (long j = 0; j < width; ++j) top = std::max(top, from[j]);

    double sum = 0.0;
    for (long j = 0; j < width; ++j) sum += to[j] = std::exp(from[j] - top);
    const float scale = 1.0 / sum;
    for (long j = 0; j < width - (row == rows - 1); ++j) to[j] *= scale;
    if (row == rows - 1) to[width - 1] = 0.0f;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.softmax(x, y, x.shape[0], x.shape[1])
        return y
