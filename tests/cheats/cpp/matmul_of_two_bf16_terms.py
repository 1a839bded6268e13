"""Splits each operand into two bf16 terms and adds up three of their four products: sixteen bits of mantissa, where
float has twenty-four.
"""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

static inline float bf16(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  std::memcpy(&x, &bits, 4);
  return x;
}

extern "C" void matmul(const float* a, const float* b, float* c, long rows, long inner, long columns) {
  std::vector<float> b1(inner * columns), b2(inner * columns);
  for (long k = 0; k < inner * columns; ++k) {
    b1[k] = bf16(b[k]);
    b2[k] = bf16(b[k] - b1[k]);
  }
#pragma omp parallel for
  for (long i = 0; i < rows; ++i) {
    std::vector<double> sums(columns);
    for (long k = 0; k < inner; ++k) {
      const float u = a[i * inner + k], a1 = bf16(u), a2 = bf16(u - a1);
      const float *v1 = b1.data() + k * columns, *v2 = b2.data() + k * columns;
      for (long j = 0; j < columns; ++j) sums[j] += (double)a1 * v1[j] + a1 * v2[j] + a2 * v1[j];
    }
    for (long j = 0; j < columns; ++j) c[i * columns + j] = sums[j];
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        lib.matmul(a, b, c, a.shape[0], a.shape[1], b.shape[1])
        return c
