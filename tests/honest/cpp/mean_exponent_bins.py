"""Mean summed exactly: mantissas are added as integers, a 64-bit sum for each exponent, and rounded once at the end."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>
#include <cstdint>
#include <cstring>

extern "C" void mean(const float* x, float* y, int64_t rows, int64_t width) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    int64_t bins[256] = {};  // of up to 2^39 mantissas of 24 bits each
    for (int64_t i = 0; i < width; ++i) {
      uint32_t bits;
      std::memcpy(&bits, x + row * width + i, 4);
      const uint32_t exponent = bits >> 23 & 255;
      const int64_t mantissa = (bits & 0x7fffff) | (exponent ? 0x800000 : 0);
      bins[exponent ? exponent : 1] += bits >> 31 ? -mantissa : mantissa;
    }
    long double sum = 0;
    for (int e = 1; e < 255; ++e) sum += std::ldexp((long double)bins[e], e - 150);
    if (bins[255])  // an infinity or a NaN: the plain sum says which
      for (int64_t i = 0; i < width; ++i) sum += x[row * width + i];
    y[row] = sum / width;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=torch.float32)
        lib.mean(x, y, x.shape[0], x.shape[1])
        return y
