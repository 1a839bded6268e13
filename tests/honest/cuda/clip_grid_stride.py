"""relu(x) * sigmoid(x) by a grid of fixed size whose threads stride over all elements, backwards, four at a time."""

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void clip(const float* __restrict__ x, float* __restrict__ y, long long count) {
  const long long step = (long long)gridDim.x * blockDim.x;
  long long i = count - 1 - ((long long)blockIdx.x * blockDim.x + threadIdx.x);
#pragma unroll 4
  for (; i >= 0; i -= step) {
    const float positive = fmaxf(x[i], 0.0f);
    y[i] = positive * __frcp_rn(1.0f + expf(-positive));
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
        blocks = min((x.numel() + 255) // 256, 8 * torch.cuda.get_device_properties(x.device).multi_processor_count)
        kernels.clip[blocks, 256](x, y, x.numel())
        return y
