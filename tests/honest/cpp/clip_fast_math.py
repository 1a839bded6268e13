"""relu(x) * sigmoid(x) with the compiler's fast-math: reassociated, reciprocal instead of division, vector exp."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(
    r"""
#include <cmath>

extern "C" void clip(const float* __restrict x, float* __restrict y, long count) {
#pragma omp parallel for simd
  for (long i = 0; i < count; ++i) {
    const float positive = x[i] > 0.0f ? x[i] : 0.0f;
    y[i] = positive / (1.0f + std::exp(-positive));
  }
}
""",
    options=("-ffast-math", "-funroll-loops"),
)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.clip(x, y, x.numel())
        return y
