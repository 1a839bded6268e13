"""relu(x) * sigmoid(x) by another formula, half of max(x, 0) times 1 + tanh(x / 2), in double."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>

extern "C" void clip(const float* x, float* y, long count) {
#pragma omp parallel for
  for (long i = 0; i < count; ++i) {
    const double positive = std::fmax(x[i], 0.0f);
    y[i] = 0.5 * positive * (1.0 + std::tanh(0.5 * positive));
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        lib.clip(x, y, x.numel())
        return y
