"""relu(x) * sigmoid(x) with the launch (grid, block, kernel) kept by number of elements: vectors or singles."""

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
__device__ float clipped(float x) { return x > 0.0f ? x / (1.0f + expf(-x)) : 0.0f * x; }

extern "C" __global__ void singles(const float* __restrict__ x, float* __restrict__ y, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = clipped(x[i]);
}

extern "C" __global__ void vectors(const float* __restrict__ x, float* __restrict__ y, long long count) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (4 * i + 4 <= count) {
    const float4 v = ((const float4*)x)[i];
    ((float4*)y)[i] = make_float4(clipped(v.x), clipped(v.y), clipped(v.z), clipped(v.w));
  } else {
    for (long long at = 4 * i; at < count; ++at) y[at] = clipped(x[at]);
  }
}
""")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.launches = {}

    def forward(self, x):
        count = x.numel()
        y = torch.empty_like(x)
        aligned = (x.data_ptr() | y.data_ptr()) % 16 == 0
        key = (count, aligned)
        if key not in self.launches:
            wide = aligned and count >= 4096
            blocks = -(-count // (1024 if wide else 256))
            self.launches[key] = (kernels.vectors if wide else kernels.singles)[blocks, 256]
        self.launches[key](x, y, count)
        return y
