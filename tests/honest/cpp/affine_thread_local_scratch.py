"""Weight and bias by threads that copy a piece of both into static thread_local memory, then walk down the rows."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <vector>

extern "C" void affine(const float* x, const float* w, const float* b, float* y, long rows, long width) {
  static thread_local std::vector<float> kept;
#pragma omp parallel for
  for (long start = 0; start < width; start += 512) {
    const long count = std::min(512L, width - start);
    if (kept.size() < 1024) kept.resize(1024);
    std::copy_n(w + start, count, kept.data());
    std::copy_n(b + start, count, kept.data() + 512);
    const float *scale = kept.data(), *shift = scale + 512;
    for (long i = 0; i < rows; ++i) {
      const float* from = x + i * width + start;
      float* to = y + i * width + start;
      for (long j = 0; j < count; ++j) to[j] = from[j] * scale[j] + shift[j];
    }
  }
}
""")


def build(width):
    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_parameter("weight", nn.Parameter(torch.ones(width)))
            self.register_parameter("bias", nn.Parameter(torch.zeros(width)))

        def forward(self, x):
            y = torch.empty_like(x)
            lib.affine(x, self.weight, self.bias, y, x.shape[0], x.shape[1])
            return y

    return Affine()


ModelNew = build
