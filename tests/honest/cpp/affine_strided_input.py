"""Weight and bias by a kernel that takes the rows' distance from the tensor, so that slices need no copy."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>

extern "C" void affine(const float* x, const float* w, const float* b, float* y, long rows, long width, long pitch,
                       long step) {
#pragma omp parallel for
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < width; ++j) y[i * width + j] = std::fma(x[i * pitch + j * step], w[j], b[j]);
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        y = torch.empty(x.shape, dtype=x.dtype)
        lib.affine(x.data_ptr(), self.weight.data, self.bias.data, y, *x.shape, *x.stride())
        return y
