"""Matrix product in blocks: b is packed into panels of 16 columns in scratch memory, multiplied by 4 rows at a time."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cstdint>

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));

extern "C" void pack(const float* b, float* panels, int64_t inner, int64_t columns) {
#pragma omp parallel for
  for (int64_t start = 0; start < columns; start += 16)
    for (int64_t k = 0; k < inner; ++k)
      for (int64_t q = 0; q < 16; ++q)
        panels[start * inner + k * 16 + q] = start + q < columns ? b[k * columns + start + q] : 0.0f;
}

extern "C" void multiply(const float* a, const float* panels, float* c, int64_t rows, int64_t inner, int64_t columns) {
#pragma omp parallel for collapse(2)
  for (int64_t start = 0; start < columns; start += 16)
    for (int64_t i = 0; i < rows; i += 4) {
      const v16* panel = (const v16*)(panels + start * inner);
      const float* from[4];
      for (int64_t r = 0; r < 4; ++r) from[r] = a + std::min(i + r, rows - 1) * inner;
      v16 sums[4] = {};
      for (int64_t k = 0; k < inner; ++k)
        for (int r = 0; r < 4; ++r) sums[r] += from[r][k] * panel[k];
      for (int64_t r = 0; r < std::min<int64_t>(4, rows - i); ++r)
        for (int64_t q = 0; q < std::min<int64_t>(16, columns - start); ++q)
          c[(i + r) * columns + start + q] = sums[r][q];
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        (rows, inner), columns = a.shape, b.shape[1]
        panels = torch.empty((columns + 15) // 16, inner, 16)
        c = torch.empty(rows, columns)
        lib.pack(b, panels, inner, columns)
        lib.multiply(a, panels, c, rows, inner, columns)
        return c
