"""LayerNorm over blocks of a row whose mean and squares are merged one after the other, like Welford."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm(x_ptr, weight_ptr, bias_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    lane = tl.arange(0, BLOCK)
    mean = 0.0
    squares = 0.0
    for start in range(0, width, BLOCK):
        inside = start + lane < width
        count = tl.minimum(BLOCK, width - start).to(tl.float32)
        # Around the mean so far: a mean near 1000 would take the low bits of the sum.
        x = tl.load(x_ptr + row + start + lane, mask=inside, other=0.0)
        delta = tl.sum(tl.where(inside, x - mean, 0.0), 0) / count
        distance = tl.where(inside, (x - mean) - delta, 0.0)
        squares += tl.sum(distance * distance, 0) + delta * delta * (start * count / (start + count))
        mean += delta * (count / (start + count))
    scale = 1.0 / tl.sqrt(squares / width + eps)
    for start in range(0, width, BLOCK):
        at = start + lane
        inside = at < width
        x = tl.load(x_ptr + row + at, mask=inside, other=0.0)
        weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
        bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
        tl.store(y_ptr + row + at, (x - mean) * scale * weight + bias, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        rows, width = x.shape
        norm[(rows,)](x, self.norm.weight, self.norm.bias, y, width, self.norm.eps, BLOCK=512, num_warps=4)
        return y
