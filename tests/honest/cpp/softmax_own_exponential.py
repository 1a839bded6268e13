"""Softmax with an exponential of its own: a power of two times a polynomial of degree six, in vectors."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

static inline float exponential(float x) {  // x <= 0
  x = std::max(x, -87.0f);
  const float n = std::rint(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t bits = ((int32_t)n + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return p * power;
}

extern "C" void softmax(const float* x, float* y, int64_t rows, int64_t width) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float *to = y + row * width, top = from[0], sum = 0.0f;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < width; ++i) top = std::max(top, from[i]);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < width; ++i) {
      to[i] = exponential(from[i] - top);
      sum += to[i];
    }
    const float scale = 1.0f / sum;
    for (int64_t i = 0; i < width; ++i) to[i] *= scale;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.softmax(x, y, x.shape[0], x.shape[1])
        return y
