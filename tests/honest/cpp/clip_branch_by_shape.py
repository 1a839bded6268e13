"""relu(x) * sigmoid(x) in one of two ways: few elements in the calling thread, many by all threads in large pieces."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>

static inline float clipped(float x) { return x > 0.0f ? x / (1.0f + std::exp(-x)) : 0.0f * x; }

extern "C" void few(const float* x, float* y, long count) {
  for (long i = 0; i < count; ++i) y[i] = clipped(x[i]);
}

extern "C" void many(const float* x, float* y, long count) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < count; ++i) y[i] = clipped(x[i]);
}
""")
FEW = 1 << 14


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        run = lib.few if x.numel() < FEW else lib.many
        run(x, y, x.numel())
        return y
