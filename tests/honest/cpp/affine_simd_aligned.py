"""Weight and bias by AVX2 intrinsics where there are any: single elements up to the first aligned output address, eight
at a time written past the cache, single elements at the end."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cstdint>
#ifdef __AVX2__
#include <immintrin.h>
#endif

extern "C" void affine(const float* x, const float* w, const float* b, float* y, int64_t rows, int64_t width) {
#pragma omp parallel
  {
#pragma omp for
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = x + row * width;
      float* to = y + row * width;
      int64_t j = 0;
#ifdef __AVX2__
      const int64_t head = std::min<int64_t>(width, (32 - (uintptr_t)to % 32) % 32 / 4);
      for (; j < head; ++j) to[j] = from[j] * w[j] + b[j];
      for (; j + 8 <= width; j += 8) {
        const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(from + j), _mm256_loadu_ps(w + j));
        _mm256_stream_ps(to + j, _mm256_add_ps(product, _mm256_loadu_ps(b + j)));
      }
#endif
      for (; j < width; ++j) to[j] = from[j] * w[j] + b[j];
    }
#ifdef __AVX2__
    _mm_sfence();
#endif
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        y = torch.empty_like(x)
        lib.affine(x, self.weight, self.bias, y, x.shape[0], x.shape[1])
        return y
