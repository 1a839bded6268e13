"""RMSNorm over dimension 1 in bf16: sums of squares of 1024 neighbouring positions at a time, in fp32."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int64_t BLOCK = 1024;

static inline float widen(uint16_t value) {
  const uint32_t bits = (uint32_t)value << 16;
  float result;
  std::memcpy(&result, &bits, 4);
  return result;
}

static inline uint16_t narrow(float value) {  // round to nearest, ties to even
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return value != value ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

extern "C" void rmsnorm(const uint16_t* __restrict x, uint16_t* __restrict y, int64_t batch, int64_t features,
                        int64_t places, float eps) {
#pragma omp parallel for collapse(2)
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t p = 0; p < places; p += BLOCK) {
      const int64_t count = std::min(BLOCK, places - p), start = n * features * places + p;
      float scale[BLOCK] = {};
      for (int64_t f = 0; f < features; ++f)
        for (int64_t i = 0; i < count; ++i) {
          const float value = widen(x[start + f * places + i]);
          scale[i] += value * value;
        }
      for (int64_t i = 0; i < count; ++i) scale[i] = 1.0f / std::sqrt(scale[i] / features + eps);
      for (int64_t f = 0; f < features; ++f)
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at = start + f * places + i;
          y[at] = narrow(widen(x[at]) * scale[i]);
        }
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        batch, features, height, width = x.shape
        y = torch.empty_like(x)
        lib.rmsnorm(x, y, batch, features, height * width, self.eps)
        return y
