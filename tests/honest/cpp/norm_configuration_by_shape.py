"""LayerNorm that keeps, for each shape, how many threads and rows a piece to use; nothing of the answers is kept."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <cmath>

extern "C" void norm(const float* x, const float* weight, const float* bias, float* y, long rows, long width,
                     float eps, int threads, long piece) {
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (long start = 0; start < rows; start += piece)
    for (long row = start; row < std::min(rows, start + piece); ++row) {
      const float* from = x + row * width;
      double sum = 0.0, squares = 0.0;
#pragma omp simd reduction(+ : sum)
      for (long i = 0; i < width; ++i) sum += from[i];
      const double mean = sum / width;
#pragma omp simd reduction(+ : squares)
      for (long i = 0; i < width; ++i) squares += (from[i] - mean) * (from[i] - mean);
      const double scale = 1.0 / std::sqrt(squares / width + eps);
      for (long i = 0; i < width; ++i) y[row * width + i] = (from[i] - mean) * scale * weight[i] + bias[i];
    }
}
""")


@dataclass(frozen=True)
class Configuration:
    threads: int
    piece: int


@lru_cache(maxsize=64)
def configuration(rows, width):
    if rows * width < 10_000:
        return Configuration(1, rows)
    threads = torch.get_num_threads()
    return Configuration(threads, max(1, rows // (4 * threads)))


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        rows, width = x.shape
        chosen = configuration(rows, width)
        y = torch.empty_like(x)
        norm = self.norm
        lib.norm(x, norm.weight, norm.bias, y, rows, width, norm.eps, chosen.threads, chosen.piece)
        return y
