"""Weight and bias into memory with room for whole blocks of 32 rows; a contiguous slice of it is returned."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" void affine(const float* x, const float* w, const float* b, float* y, long rows, long width) {
#pragma omp parallel for
  for (long block = 0; block < rows; block += 32)
    for (long i = block; i < block + 32; ++i)
      for (long j = 0; j < width; ++j) y[i * width + j] = i < rows ? x[i * width + j] * w[j] + b[j] : 0.0f;
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        rows, width = x.shape
        y = torch.empty((rows + 31) // 32 * 32, width)
        lib.affine(x, self.weight, self.bias, y, rows, width)
        return y[:rows]
