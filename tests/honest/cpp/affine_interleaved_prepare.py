"""Weight and bias interleaved by prepare(), which is called after every change of the weights, so that one stream of
pairs is read instead of two."""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" void affine(const float* x, const float* pairs, float* y, long rows, long width) {
#pragma omp parallel for
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < width; ++j) y[i * width + j] = x[i * width + j] * pairs[2 * j] + pairs[2 * j + 1];
}
""")


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.pairs = None

    def prepare(self):
        self.pairs = torch.stack([self.weight.detach(), self.bias.detach()], dim=1).contiguous()

    def forward(self, x):
        y = torch.empty_like(x)
        lib.affine(x, self.pairs, y, x.shape[0], x.shape[1])
        return y
