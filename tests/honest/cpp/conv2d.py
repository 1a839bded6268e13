"""Convolution as a product: 16 output positions gathered into a panel, tiles of 6 channels x 16 positions."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cstdint>
#include <vector>

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t ROWS = 6, COLS = 16;

static void tile(const float* const* a, const v16* b, int64_t depth, v16* out) {
  v16 acc[ROWS] = {};
  for (int64_t k = 0; k < depth; ++k)
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) acc[r] += a[r][k] * b[k];
  for (int r = 0; r < ROWS; ++r) out[r] = acc[r];
}

extern "C" void conv2d(const float* x, const float* w, const float* bias, float* y, int64_t batch, int64_t channels,
                       int64_t height, int64_t width, int64_t features, int64_t size, int64_t stride,
                       int64_t padding, int64_t out_height, int64_t out_width) {
  const int64_t depth = channels * size * size, places = out_height * out_width;
#pragma omp parallel
  {
    std::vector<float> panel(depth * COLS);
#pragma omp for collapse(2)
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t p = 0; p < places; p += COLS) {
        const int64_t count = std::min(COLS, places - p);
        for (int64_t q = 0; q < count; ++q) {
          const int64_t top = (p + q) / out_width * stride - padding, left = (p + q) % out_width * stride - padding;
          float* to = panel.data() + q;
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t i = top; i < top + size; ++i)
              for (int64_t j = left; j < left + size; ++j, to += COLS) {
                const bool inside = i >= 0 && i < height && j >= 0 && j < width;
                *to = inside ? x[((n * channels + c) * height + i) * width + j] : 0.0f;
              }
        }
        for (int64_t f = 0; f < features; f += ROWS) {
          const float* rows[ROWS];
          for (int64_t r = 0; r < ROWS; ++r) rows[r] = w + std::min(f + r, features - 1) * depth;
          v16 out[ROWS];
          tile(rows, (const v16*)panel.data(), depth, out);
          for (int64_t r = 0; r < std::min(ROWS, features - f); ++r)
            for (int64_t q = 0; q < count; ++q) y[(n * features + f + r) * places + p + q] = out[r][q] + bias[f + r];
        }
      }
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.shape = (kernel_size, stride, padding)

    def forward(self, x):
        batch, channels, height, width = x.shape
        size, stride, padding = self.shape
        features = self.conv.weight.shape[0]
        out_height, out_width = ((n + 2 * padding - size) // stride + 1 for n in (height, width))
        y = torch.empty((batch, features, out_height, out_width), dtype=x.dtype)
        lib.conv2d(
            x, self.conv.weight, self.conv.bias, y, batch, channels, height, width, features, size, stride, padding,
            out_height, out_width,
        )  # fmt: skip
        return y
