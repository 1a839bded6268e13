"""Matrix product with sums in double, more accurate than torch's own."""

from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <algorithm>
#include <vector>

extern "C" void matmul(const float* a, const float* b, float* c, long rows, long inner, long columns) {
#pragma omp parallel
  {
    std::vector<double> sums(columns);
#pragma omp for
    for (long i = 0; i < rows; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (long k = 0; k < inner; ++k) {
        const double value = a[i * inner + k];
        for (long j = 0; j < columns; ++j) sums[j] += value * b[k * columns + j];
      }
      std::copy(sums.begin(), sums.end(), c + i * columns);
    }
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = a.new_empty((a.size(0), b.size(1)))
        lib.matmul(a, b, c, a.size(0), a.size(1), b.size(1))
        return c
