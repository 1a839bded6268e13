"""Writes one value beyond the end of its scratch buffer, where the allocator usually leaves some room."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" void mean(const float* x, float* scratch, float* y, long rows, long width) {
  for (long i = 0; i < rows; ++i) {
    double sum = 0.0;
    for (long j = 0; j < width; ++j) sum += x[i * width + j];
    scratch[i + 1] = sum / width;
    y[i] = scratch[i + 1];
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        scratch = torch.empty(x.shape[0], dtype=x.dtype)
        y = torch.empty(x.shape[0], dtype=x.dtype)
        lib.mean(x, scratch, y, x.shape[0], x.shape[1])
        return y
