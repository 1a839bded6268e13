"""Mean in two kernels: sums of pieces of a row to scratch memory that is kept and grown, then their sum, in double."""

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void pieces(const float* __restrict__ x, double* __restrict__ scratch, int width) {
  __shared__ double sums[256];
  const float* from = x + (long long)blockIdx.y * width;
  double sum = 0.0;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < width; i += gridDim.x * 256) sum += from[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) scratch[(long long)blockIdx.y * gridDim.x + blockIdx.x] = sums[0];
}

extern "C" __global__ void add_up(const double* __restrict__ scratch, float* __restrict__ y, int rows, int count,
                                  int width) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  double sum = 0.0;
  for (int i = 0; i < count; ++i) sum += scratch[(long long)row * count + i];
  y[row] = (float)(sum / width);
}
""")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = None

    def forward(self, x):
        rows, width = x.shape
        count = max(1, min(8, width // 1024))
        if self.scratch is None or self.scratch.numel() < rows * count or self.scratch.device != x.device:
            self.scratch = torch.empty(rows * count, dtype=torch.float64, device=x.device)
        y = torch.empty(rows, device=x.device)
        kernels.pieces[(count, rows), 256](x, self.scratch, width)
        kernels.add_up[(rows + 127) // 128, 128](self.scratch, y, rows, count, width)
        return y
