"""Mean by two blocks a multiprocessor, each of which walks down the rows in steps of the grid; sums in double."""

import functools

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void mean(const float* __restrict__ x, float* __restrict__ y, int rows, int width) {
  __shared__ double parts[16];
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* from = x + (long long)row * width;
    double sum = 0.0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += from[i];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < blockDim.x / 32; ++warp) sum += parts[warp];
      y[row] = (float)(sum / width);
    }
    __syncthreads();  // before the next row's parts
  }
}
""")


@functools.cache
def multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


class ModelNew(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        y = torch.empty(rows, dtype=x.dtype, device=x.device)
        kernels.mean[min(rows, 2 * multiprocessors(x.device)), 512](x, y, rows, width)
        return y
