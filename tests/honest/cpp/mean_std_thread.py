"""Mean by std::thread workers that take the next row from a counter and are joined before the call returns."""

import os

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(
    r"""
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

extern "C" void mean(const float* x, float* y, long rows, long width, int workers) {
  std::atomic<long> next{0};
  const auto work = [&] {
    for (long row; (row = next.fetch_add(1)) < rows;) {
      double sums[8] = {}, sum = 0.0;
      long i = 0;
      for (; i + 8 <= width; i += 8)
        for (int lane = 0; lane < 8; ++lane) sums[lane] += x[row * width + i + lane];
      for (; i < width; ++i) sum += x[row * width + i];
      for (double part : sums) sum += part;
      y[row] = sum / width;
    }
  };
  std::vector<std::thread> threads;
  for (long i = 1; i < std::min<long>(workers, rows); ++i) threads.emplace_back(work);
  work();
  for (auto& thread : threads) thread.join();
}
""",
    options=("-pthread",),
)
WORKERS = os.cpu_count() or 1


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        lib.mean(x, y, x.shape[0], x.shape[1], WORKERS)
        return y
