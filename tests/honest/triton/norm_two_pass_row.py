"""LayerNorm with a whole row in a program's registers: its mean, then the squares around it, then the answer."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.heuristics(
    {
        "BLOCK": lambda arguments: triton.next_power_of_2(arguments["width"]),
        "num_warps": lambda arguments: 4 if arguments["width"] <= 2048 else 8,
    }
)
@triton.jit
def norm(x_ptr, weight_ptr, bias_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, BLOCK)
    inside = at < width
    x = tl.load(x_ptr + row + at, mask=inside, other=0.0)
    distance = tl.where(inside, x - tl.sum(x, 0) / width, 0.0)
    distance = tl.where(inside, distance - tl.sum(distance, 0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(distance * distance, 0) / width + eps)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
    tl.store(y_ptr + row + at, distance * scale * weight + bias, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        norm[(x.shape[0],)](x, self.norm.weight, self.norm.bias, y, x.shape[1], self.norm.eps)
        return y
