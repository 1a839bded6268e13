"""Mean in two passes over a row: a rough mean in float, then in double the mean of what is left."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" void mean(const float* x, float* y, long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < width; ++i) sum += from[i];
    const float rough = sum / width;
    double left = 0.0;
#pragma omp simd reduction(+ : left)
    for (long i = 0; i < width; ++i) left += (double)from[i] - rough;
    y[row] = rough + left / width;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        y = torch.empty_strided((rows,), (1,), dtype=x.dtype)
        lib.mean(x, y, rows, width)
        return y
