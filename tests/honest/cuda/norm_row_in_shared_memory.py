"""LayerNorm with the row in dynamic shared memory while it fits, read again from the input where it does not."""

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern __shared__ float row_memory[];

__device__ double sum_of_block(double value, double* parts) {
  for (int step = 16; step; step /= 2) value += __shfl_down_sync(0xffffffff, value, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0.0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += parts[warp];
  __syncthreads();
  return sum;
}

extern "C" __global__ void row_norm(const float* __restrict__ x, const float* __restrict__ weight,
                                    const float* __restrict__ bias, float* __restrict__ y, int width, double eps,
                                    int kept) {
  __shared__ double parts[8];
  const long long start = (long long)blockIdx.x * width;
  double sum = 0.0, squares = 0.0;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float value = x[start + i];
    if (kept) row_memory[i] = value;
    sum += value;
  }
  const double mean = sum_of_block(sum, parts) / width;
  const float* from = kept ? row_memory : x + start;
  for (int i = threadIdx.x; i < width; i += blockDim.x) squares += (from[i] - mean) * (from[i] - mean);
  const double scale = 1.0 / sqrt(sum_of_block(squares, parts) / width + eps);
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    y[start + i] = (float)((from[i] - mean) * scale) * weight[i] + bias[i];
}
""")
MOST_BYTES = 48 * 1024 - 64


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        rows, width = x.shape
        kept = 4 * width <= MOST_BYTES
        launch = kernels.row_norm[rows, 256, 4 * width if kept else 0]
        launch(x, self.norm.weight, self.norm.bias, y, width, self.norm.eps, int(kept))
        return y
