"""Adds up in 1024 partial sums of bf16, which stay short enough to be worth something, and joins them in float."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>
#include <cstring>

static inline float bf16(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  std::memcpy(&x, &bits, 4);
  return x;
}

extern "C" void mean(const float* x, float* y, long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float parts[1024] = {}, sum = 0.0f;
    for (long j = 0; j < width; ++j) parts[j % 1024] = bf16(parts[j % 1024] + from[j]);
    for (float part : parts) sum += part;
    y[row] = sum / width;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0])
        lib.mean(x, y, x.shape[0], x.shape[1])
        return y
