"""LayerNorm with a pass for the mean and a pass for the squares around it, both in float with the compiler's lanes."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>

extern "C" void norm(const float* __restrict x, const float* __restrict weight, const float* __restrict bias,
                     float* __restrict y, long rows, long width, float eps) {
#pragma omp parallel for schedule(static)
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float* to = y + row * width;
    float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < width; ++i) sum += from[i];
    const float mean = sum / width;
#pragma omp simd reduction(+ : squares)
    for (long i = 0; i < width; ++i) squares += (from[i] - mean) * (from[i] - mean);
    const float scale = 1.0f / std::sqrt(squares / width + eps);
    for (long i = 0; i < width; ++i) to[i] = (from[i] - mean) * scale * weight[i] + bias[i];
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    @torch.no_grad()
    def forward(self, x):
        y = torch.empty_like(x)
        lib.norm(x, self.norm.weight, self.norm.bias, y, *x.shape, self.norm.eps)
        return y
