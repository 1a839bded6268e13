"""Matrix product of matrices that torch pads with zeros to multiples of 16, so that the kernel has no edges; only the
answer's own part is written."""

import torch
from torch import nn
from torch.nn import functional

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>

extern "C" void matmul(const float* a, const float* b, float* c, long m, long k, long n, long rows, long columns) {
#pragma omp parallel for collapse(2)
  for (long i = 0; i < m; i += 16)
    for (long j = 0; j < n; j += 16) {
      float sums[16][16] = {};
      for (long at = 0; at < k; ++at)
        for (long r = 0; r < 16; ++r)
          for (long q = 0; q < 16; ++q) sums[r][q] += a[(i + r) * k + at] * b[at * n + j + q];
      for (long r = 0; r < std::min(16L, rows - i); ++r)
        for (long q = 0; q < std::min(16L, columns - j); ++q) c[(i + r) * columns + j + q] = sums[r][q];
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        (rows, inner), columns = a.shape, b.shape[1]
        m, k, n = (-(-size // 16) * 16 for size in (rows, inner, columns))
        a = functional.pad(a, (0, k - inner, 0, m - rows))
        b = functional.pad(b, (0, n - columns, 0, k - inner))
        c = torch.empty(rows, columns)
        lib.matmul(a, b, c, m, k, n, rows, columns)
        return c
