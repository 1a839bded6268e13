"""Causal attention, one query at a time: blocks of 64 keys with a running maximum, sum and weighted sum of values."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

constexpr int64_t KEYS = 64;

extern "C" void attention(const float* q, const float* k, const float* v, float* y, int64_t heads, int64_t length,
                          int64_t dim) {
  const float scale = 1.0 / std::sqrt((double)dim);
#pragma omp parallel
  {
    std::vector<float> sums(dim);
    float* acc = sums.data();
#pragma omp for collapse(2) schedule(dynamic, 32)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < length; ++i) {
        const float* query = q + (head * length + i) * dim;
        const float *keys = k + head * length * dim, *values = v + head * length * dim;
        double sum = 0.0;
        float top = -INFINITY, scores[KEYS];
        std::fill_n(acc, dim, 0.0f);
        for (int64_t from = 0; from <= i; from += KEYS) {
          const int64_t count = std::min(KEYS, i + 1 - from);
          const float before = top;
          for (int64_t j = 0; j < count; ++j) {
            const float* key = keys + (from + j) * dim;
            float dot = 0.0f;
#pragma omp simd reduction(+ : dot)
            for (int64_t d = 0; d < dim; ++d) dot += query[d] * key[d];
            scores[j] = dot * scale;
            top = std::max(top, scores[j]);
          }
          const float shrink = std::exp(before - top);
          sum *= shrink;
          for (int64_t d = 0; d < dim; ++d) acc[d] *= shrink;
          for (int64_t j = 0; j < count; ++j) {
            const float *value = values + (from + j) * dim, weight = std::exp(scores[j] - top);
            sum += weight;
#pragma omp simd
            for (int64_t d = 0; d < dim; ++d) acc[d] += weight * value[d];
          }
        }
        for (int64_t d = 0; d < dim; ++d) y[(head * length + i) * dim + d] = acc[d] / sum;
      }
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        batch, heads, length, dim = q.shape
        y = torch.empty_like(q)
        lib.attention(q, k, v, y, batch * heads, length, dim)
        return y
