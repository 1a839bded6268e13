"""LayerNorm by Welford's running mean and squares, 16 lanes a row in float, merged by Chan's formula."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cmath>
#include <cstdint>

constexpr int LANES = 16;

extern "C" void norm(const float* x, const float* weight, const float* bias, float* y, int64_t rows, int64_t width,
                     float eps) {
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    float mean[LANES] = {}, squares[LANES] = {};
    const int64_t steps = width / LANES;
    for (int64_t step = 0; step < steps; ++step) {
      const float share = 1.0f / (step + 1);
      for (int lane = 0; lane < LANES; ++lane) {
        const float value = from[step * LANES + lane], before = value - mean[lane];
        mean[lane] += before * share;
        squares[lane] += before * (value - mean[lane]);
      }
    }
    double count = 0, all = 0, sum = 0;  // of the lanes merged so far
    for (int lane = 0; lane < LANES && steps; ++lane) {
      const double delta = mean[lane] - all, merged = count + steps;
      all += delta * steps / merged;
      sum += squares[lane] + delta * delta * count * steps / merged;
      count = merged;
    }
    for (int64_t i = steps * LANES; i < width; ++i) {
      const double before = from[i] - all;
      count += 1;
      all += before / count;
      sum += before * (from[i] - all);
    }
    const float scale = 1.0 / std::sqrt(sum / width + eps);
    for (int64_t i = 0; i < width; ++i) y[row * width + i] = (float)(from[i] - all) * scale * weight[i] + bias[i];
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        lib.norm(x, self.norm.weight, self.norm.bias, y, x.shape[0], x.shape[1], self.norm.eps)
        return y
