"""LayerNorm, a warp a row: Welford's running mean and squares in each lane, merged in double by shuffles."""

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void row_norm(const float* __restrict__ x, const float* __restrict__ weight,
                                    const float* __restrict__ bias, float* __restrict__ y, int rows, int width,
                                    float eps) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;  // all of a warp or nothing of it
  const float* from = x + (long long)row * width;
  float* to = y + (long long)row * width;
  double count = 0.0, mean = 0.0, squares = 0.0;
  for (int i = lane; i < width; i += 32) {
    const double before = from[i] - mean;
    count += 1.0;
    mean += before / count;
    squares += before * (from[i] - mean);
  }
  for (int step = 16; step; step /= 2) {
    const double other_count = __shfl_xor_sync(0xffffffff, count, step);
    const double other_mean = __shfl_xor_sync(0xffffffff, mean, step);
    const double other_squares = __shfl_xor_sync(0xffffffff, squares, step);
    const double both = count + other_count;
    if (both > 0.0) {  // a row may be shorter than a warp
      const double delta = other_mean - mean;
      mean = (count * mean + other_count * other_mean) / both;
      squares += other_squares + delta * delta * (count * other_count / both);
      count = both;
    }
  }
  const double scale = 1.0 / sqrt(squares / width + eps);
  for (int i = lane; i < width; i += 32) to[i] = (float)((from[i] - mean) * scale) * weight[i] + bias[i];
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        rows, width = x.shape
        kernels.row_norm[(rows + 7) // 8, 256](x, self.norm.weight, self.norm.bias, y, rows, width, self.norm.eps)
        return y
