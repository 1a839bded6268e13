"""Mean by pairwise summation in float: a row is halved until 256 elements are left, whose sums are added in pairs."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
static float sum_of(const float* x, long count) {
  if (count > 256) {
    const long half = (count / 2 + 15) / 16 * 16;
    return sum_of(x, half) + sum_of(x + half, count - half);
  }
  float lanes[16] = {}, rest = 0.0f;
  long i = 0;
  for (; i + 16 <= count; i += 16)
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += x[i + lane];
  for (; i < count; ++i) rest += x[i];
  for (int step = 8; step; step /= 2)
    for (int lane = 0; lane < step; ++lane) lanes[lane] += lanes[lane + step];
  return lanes[0] + rest;
}

extern "C" void mean(const float* x, float* y, long rows, long width) {
#pragma omp parallel for
  for (long row = 0; row < rows; ++row) y[row] = sum_of(x + row * width, width) / width;
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        y = torch.empty(rows)
        lib.mean(x, y, rows, width)
        return y
