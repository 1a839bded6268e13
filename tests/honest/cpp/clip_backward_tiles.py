"""relu(x) * sigmoid(x) written from the last element to the first, in tiles of 4096 handed out from the end."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>

extern "C" void clip(const float* x, float* y, long count) {
  const long tiles = (count + 4095) / 4096;
#pragma omp parallel for schedule(dynamic, 1)
  for (long tile = tiles - 1; tile >= 0; --tile)
    for (long i = std::min(count, (tile + 1) * 4096) - 1; i >= tile * 4096; --i)
      y[i] = x[i] > 0.0f ? x[i] / (1.0f + std::exp(-x[i])) : 0.0f;
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype)
        lib.clip(x, y, x.numel())
        return y
