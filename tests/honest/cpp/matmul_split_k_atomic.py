"""Matrix product with its inner dimension split among threads: each has a partial product of its own, which is added
to the zeroed answer atomically."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <vector>

extern "C" void matmul(const float* a, const float* b, float* c, long rows, long inner, long columns) {
  const long slice = std::max(16L, (inner + 7) / 8);
#pragma omp parallel
  {
    std::vector<float> part(rows * columns);
#pragma omp for schedule(dynamic, 1)
    for (long start = 0; start < inner; start += slice) {
      const long stop = std::min(inner, start + slice);
      for (long i = 0; i < rows; ++i)
        for (long k = start; k < stop; ++k) {
          const float value = a[i * inner + k];
#pragma omp simd
          for (long j = 0; j < columns; ++j) part[i * columns + j] += value * b[k * columns + j];
        }
    }
    for (long i = 0; i < rows * columns; ++i) {
#pragma omp atomic
      c[i] += part[i];
    }
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.zeros(a.shape[0], b.shape[1])
        lib.matmul(a, b, c, a.shape[0], a.shape[1], b.shape[1])
        return c
