"""Weight and bias four elements at a time where every address allows it, one at a time at the end and elsewhere."""

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void affine(const float* __restrict__ x, const float* __restrict__ w,
                                  const float* __restrict__ b, float* __restrict__ y, int width) {
  const float* from = x + (long long)blockIdx.x * width;
  float* to = y + (long long)blockIdx.x * width;
  const bool aligned = (((uintptr_t)from | (uintptr_t)to | (uintptr_t)w | (uintptr_t)b) & 15) == 0;
  const int quads = aligned ? width / 4 : 0;
  for (int i = threadIdx.x; i < quads; i += blockDim.x) {
    const float4 v = ((const float4*)from)[i], scale = ((const float4*)w)[i], shift = ((const float4*)b)[i];
    ((float4*)to)[i] = make_float4(v.x * scale.x + shift.x, v.y * scale.y + shift.y, v.z * scale.z + shift.z,
                                   v.w * scale.w + shift.w);
  }
  for (int i = 4 * quads + threadIdx.x; i < width; i += blockDim.x) to[i] = from[i] * w[i] + b[i];
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        rows, width = x.shape
        y = torch.empty_like(x)
        kernels.affine[rows, 256](x, self.weight, self.bias, y, width)
        return y
