"""Weight and bias on a stream of its own; it and the caller's stream wait for each other."""

import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void affine(const float* x, const float* w, const float* b, float* y, long long count,
                                  int width) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] * w[i % width] + b[i % width];
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream(x.device)
        y = torch.empty_like(x)
        caller = torch.cuda.current_stream(x.device)
        self.side.wait_stream(caller)
        with torch.cuda.stream(self.side):
            kernels.affine[(x.numel() + 255) // 256, 256](x, self.weight, self.bias, y, x.numel(), x.shape[1])
        caller.wait_stream(self.side)
        return y
