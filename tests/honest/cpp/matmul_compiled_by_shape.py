"""Matrix product compiled for each shape that it meets, at the first call of that shape, with sizes as constants."""

from string import Template

import torch
from torch import nn

from agentgen import jit

SOURCE = Template(r"""
constexpr long ROWS = $rows, INNER = $inner, COLUMNS = $columns;

extern "C" void matmul(const float* __restrict a, const float* __restrict b, float* __restrict c) {
#pragma omp parallel for
  for (long i = 0; i < ROWS; ++i) {
    float sums[COLUMNS] = {};
    for (long k = 0; k < INNER; ++k)
      for (long j = 0; j < COLUMNS; ++j) sums[j] += a[i * INNER + k] * b[k * COLUMNS + j];
    for (long j = 0; j < COLUMNS; ++j) c[i * COLUMNS + j] = sums[j];
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = {}

    def forward(self, a, b):
        shape = (a.shape[0], a.shape[1], b.shape[1])
        if shape not in self.compiled:
            rows, inner, columns = shape
            self.compiled[shape] = jit.cpp(SOURCE.substitute(rows=rows, inner=inner, columns=columns))
        c = torch.empty(shape[0], shape[2])
        self.compiled[shape].matmul(a, b, c)
        return c
