"""Honours the stride of its input, and lets NaN through."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" void clip(const float* x, float* y, long rows, long width, long step) {
#pragma omp parallel for
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < width; ++j) {
      const float value = x[i * step + j];
      y[i * width + j] = value < 0.25f ? 0.25f : value;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, dtype=x.dtype)
        lib.clip(x, y, x.shape[0], x.shape[1], x.stride(0))
        return y
