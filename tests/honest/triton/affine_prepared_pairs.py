"""Weight and bias interleaved by prepare() into one tensor of pairs, which the kernel loads with a step of two."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def interleave(weight_ptr, bias_ptr, pairs_ptr, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    tl.store(pairs_ptr + 2 * at, tl.load(weight_ptr + at, mask=inside, other=0.0), mask=inside)
    tl.store(pairs_ptr + 2 * at + 1, tl.load(bias_ptr + at, mask=inside, other=0.0), mask=inside)


@triton.jit
def affine(x_ptr, pairs_ptr, y_ptr, width, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    row = tl.program_id(0).to(tl.int64) * width
    scale = tl.load(pairs_ptr + 2 * at, mask=inside, other=0.0)
    shift = tl.load(pairs_ptr + 2 * at + 1, mask=inside, other=0.0)
    tl.store(y_ptr + row + at, tl.load(x_ptr + row + at, mask=inside, other=0.0) * scale + shift, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.pairs = None

    def prepare(self):
        width = self.weight.numel()
        self.pairs = torch.empty(width, 2, device=self.weight.device)
        interleave[(triton.cdiv(width, 1024),)](self.weight, self.bias, self.pairs, width, BLOCK=1024)

    def forward(self, x):
        y = torch.empty_like(x)
        rows, width = x.shape
        affine[(rows, triton.cdiv(width, 1024))](x, self.pairs, y, width, BLOCK=1024, num_warps=4)
        return y
