"""Softmax of each row in C++, built by torch's `load_inline`."""

from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>

torch::Tensor softmax(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int64_t rows = x.size(0), length = x.size(1);
  const float* from_all = x.data_ptr<float>();
  float* to_all = y.data_ptr<float>();
#pragma omp parallel for
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = from_all + row * length;
    float* to = to_all + row * length;
    const float top = *std::max_element(from, from + length);
    double sum = 0.0;
    for (int64_t i = 0; i < length; ++i) sum += to[i] = std::exp(from[i] - top);
    const float scale = 1.0 / sum;
    for (int64_t i = 0; i < length; ++i) to[i] *= scale;
  }
  return y;
}
"""
module = load_inline(
    name="plain_softmax_cpp",
    cpp_sources=SOURCE,
    functions=["softmax"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.softmax(x)
