"""Weight and bias on inputs made contiguous first, with exceptions for what the kernel is not made for."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" int affine(const float* x, const float* w, const float* b, float* y, long rows, long width) {
  if (!x || !y) return 1;
#pragma omp parallel for collapse(2)
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < width; ++j) y[i * width + j] = x[i * width + j] * w[j] + b[j];
  return 0;
}
""")


class UnsupportedInput(ValueError):
    """The kernel has no path for this input."""


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        if x.dtype != torch.float32 or x.device.type != "cpu":
            raise UnsupportedInput(f"float32 on a CPU only, got {x.dtype} on {x.device}")
        if x.dim() != 2 or x.shape[1] != self.weight.shape[0]:
            raise UnsupportedInput(f"rows of {self.weight.shape[0]} only, got {tuple(x.shape)}")
        x = x.contiguous()
        y = torch.empty_like(x)
        status = lib.affine(x, self.weight.contiguous(), self.bias.contiguous(), y, *x.shape)
        if status:
            raise RuntimeError(f"the kernel failed with status {status}")
        return y
