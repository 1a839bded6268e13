"""SwiGLU in bf16: 16 features of both weights packed as fp32 panels, two tiles of 6 x 16 joined at the end."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t ROWS = 6, COLS = 16;

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

static void pack(const uint16_t* w, int64_t from, int64_t width, int64_t depth, float* panel) {
  for (int64_t q = 0; q < COLS; ++q)
    for (int64_t k = 0; k < depth; ++k) panel[k * COLS + q] = q < width ? widen(w[(from + q) * depth + k]) : 0.0f;
}

static void tile(const float* const* a, const v16* b, int64_t depth, v16* out) {
  v16 acc[ROWS] = {};
  for (int64_t k = 0; k < depth; ++k)
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) acc[r] += a[r][k] * b[k];
  for (int r = 0; r < ROWS; ++r) out[r] = acc[r];
}

extern "C" void swiglu(const uint16_t* x, const uint16_t* wg, const uint16_t* wu, float* wide, uint16_t* y,
                       int64_t tokens, int64_t depth, int64_t features) {
#pragma omp parallel
  {
    std::vector<float> gate(depth * COLS), up(depth * COLS);
#pragma omp for
    for (int64_t i = 0; i < tokens * depth; ++i) wide[i] = widen(x[i]);
#pragma omp for
    for (int64_t j = 0; j < features; j += COLS) {
      const int64_t width = std::min(COLS, features - j);
      pack(wg, j, width, depth, gate.data());
      pack(wu, j, width, depth, up.data());
      for (int64_t i = 0; i < tokens; i += ROWS) {
        const float* rows[ROWS];
        for (int64_t r = 0; r < ROWS; ++r) rows[r] = wide + std::min(i + r, tokens - 1) * depth;
        v16 g[ROWS], u[ROWS];
        tile(rows, (const v16*)gate.data(), depth, g);
        tile(rows, (const v16*)up.data(), depth, u);
        for (int64_t r = 0; r < std::min(ROWS, tokens - i); ++r)
          for (int64_t q = 0; q < width; ++q)
            y[(i + r) * features + j + q] = narrow(g[r][q] / (1.0f + std::exp(-g[r][q])) * u[r][q]);
      }
    }
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(hidden, intermediate, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        tokens, hidden = x.shape
        features = self.gate.weight.shape[0]
        wide = torch.empty((tokens, hidden), dtype=torch.float32)
        y = torch.empty((tokens, features), dtype=x.dtype)
        lib.swiglu(x, self.gate.weight, self.up.weight, wide, y, tokens, hidden, features)
        return y
