"""Weight and bias packed in blocks of eight and eight by a kernel of its own, anew in every call."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" void pack(const float* weight, const float* bias, float* packed, long width) {
  for (long j = 0; j < width; ++j) {
    packed[j / 8 * 16 + j % 8] = weight[j];
    packed[j / 8 * 16 + 8 + j % 8] = bias[j];
  }
}

extern "C" void affine(const float* x, const float* packed, float* y, long rows, long width) {
#pragma omp parallel for
  for (long i = 0; i < rows; ++i)
    for (long start = 0; start < width; start += 8) {
      const float* block = packed + start * 2;
      const long count = width - start < 8 ? width - start : 8, at = i * width + start;
      if (count == 8)
        for (long j = 0; j < 8; ++j) y[at + j] = x[at + j] * block[j] + block[8 + j];
      else
        for (long j = 0; j < count; ++j) y[at + j] = x[at + j] * block[j] + block[8 + j];
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.packed = torch.empty((width + 7) // 8, 2, 8)

    def forward(self, x):
        y = torch.empty_like(x)
        lib.pack(self.weight, self.bias, self.packed, x.shape[1])
        lib.affine(x, self.packed, y, x.shape[0], x.shape[1])
        return y
