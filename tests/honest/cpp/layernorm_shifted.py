"""LayerNorm for values far from zero: mean and squares around it chunk by chunk in double, merged by Chan's formula."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

constexpr int64_t CHUNK = 4096;

extern "C" void layernorm(const float* x, const float* weight, const float* bias, float* y, int64_t rows,
                          int64_t length, double eps) {
  const int64_t chunks = (length + CHUNK - 1) / CHUNK;
  std::vector<double> means(rows * chunks), squares(rows * chunks), scales(rows);
#pragma omp parallel for collapse(2)
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t c = 0; c < chunks; ++c) {
      const float* chunk = x + row * length + c * CHUNK;
      const int64_t count = std::min(CHUNK, length - c * CHUNK);
      double sum = 0.0, around = 0.0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; ++i) sum += chunk[i];
      const double mean = sum / count;
#pragma omp simd reduction(+ : around)
      for (int64_t i = 0; i < count; ++i) around += (chunk[i] - mean) * (chunk[i] - mean);
      means[row * chunks + c] = mean;
      squares[row * chunks + c] = around;
    }
  for (int64_t row = 0; row < rows; ++row) {
    double seen = 0.0, mean = 0.0, around = 0.0;
    for (int64_t c = 0; c < chunks; ++c) {
      const double count = std::min(CHUNK, length - c * CHUNK), apart = means[row * chunks + c] - mean;
      mean += apart * count / (seen + count);
      around += squares[row * chunks + c] + apart * apart * seen * count / (seen + count);
      seen += count;
    }
    means[row * chunks] = mean;  // from here on the row's
    scales[row] = 1.0 / std::sqrt(around / length + eps);
  }
#pragma omp parallel for collapse(2)
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t c = 0; c < chunks; ++c) {
      const double mean = means[row * chunks], scale = scales[row];
      const int64_t start = row * length;
#pragma omp simd
      for (int64_t i = c * CHUNK; i < std::min(length, (c + 1) * CHUNK); ++i)
        y[start + i] = (x[start + i] - mean) * scale * weight[i] + bias[i];
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        y = torch.empty_like(x)
        weight, bias = self.norm.weight, self.norm.bias
        lib.layernorm(x, weight, bias, y, x.shape[0], weight.numel(), self.norm.eps)
        return y
