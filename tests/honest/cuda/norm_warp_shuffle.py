"""LayerNorm, a block a row: sums by warp shuffles and shared memory, a pass for the mean and one for the squares."""

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
__device__ float sum_of_block(float value) {
  __shared__ float parts[32];
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  __syncthreads();  // the last sum has been read
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += parts[warp];
  return sum;
}

extern "C" __global__ void row_norm(const float* __restrict__ x, const float* __restrict__ weight,
                                    const float* __restrict__ bias, float* __restrict__ y, int width, float eps) {
  const float* from = x + (long long)blockIdx.x * width;
  float* to = y + (long long)blockIdx.x * width;
  float sum = 0.0f, rest = 0.0f, squares = 0.0f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) sum += from[i];
  const float mean = sum_of_block(sum) / width;
  for (int i = threadIdx.x; i < width; i += blockDim.x) rest += from[i] - mean;
  rest = sum_of_block(rest) / width;  // what rounding took from the mean
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const float distance = from[i] - mean - rest;
    squares += distance * distance;
  }
  const float scale = 1.0f / sqrtf(sum_of_block(squares) / width + eps);
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    to[i] = (from[i] - mean - rest) * scale * weight[i] + bias[i];
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        rows, width = x.shape
        kernels.row_norm[rows, 256](x, self.norm.weight, self.norm.bias, y, width, self.norm.eps)
        return y
