"""LayerNorm over few, very long rows: statistics of blocks, their merge (Chan, Golub and LeVeque), normalisation.

A mean near 1000 does not fit fp32 when the deviation is 0.1. So a block's mean is kept as a rounded value and the mean
of what is left after subtracting it, and a row's as the rounded mean of its first block plus an offset.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def block_statistics(x_ptr, mean_ptr, rest_ptr, squares_ptr, width, blocks, BLOCK: tl.constexpr):
    row, block = tl.program_id(1), tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    count = tl.minimum(BLOCK, width - block * BLOCK)
    x = tl.load(x_ptr + row.to(tl.int64) * width + at, mask=inside, other=0.0)
    mean = tl.sum(x, 0) / count
    x = tl.where(inside, x - mean, 0.0)
    rest = tl.sum(x, 0) / count
    x = tl.where(inside, x - rest, 0.0)
    tl.store(mean_ptr + row * blocks + block, mean)
    tl.store(rest_ptr + row * blocks + block, rest)
    tl.store(squares_ptr + row * blocks + block, tl.sum(x * x, 0))


@triton.jit
def merge(mean_ptr, rest_ptr, squares_ptr, row_ptr, width, blocks, eps, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    row = tl.program_id(0)
    block = tl.arange(0, BLOCKS)
    at = row * blocks + block
    count = tl.where(block < blocks, tl.minimum(BLOCK, width - block * BLOCK), 0)
    base = tl.load(mean_ptr + row * blocks)
    mean = tl.load(mean_ptr + at, mask=block < blocks, other=0.0) - base
    mean += tl.load(rest_ptr + at, mask=block < blocks, other=0.0)
    offset = tl.sum(mean * count, 0) / width
    squares = tl.load(squares_ptr + at, mask=block < blocks, other=0.0) + count * (mean - offset) * (mean - offset)
    tl.store(row_ptr + row * 3, base)
    tl.store(row_ptr + row * 3 + 1, offset)
    tl.store(row_ptr + row * 3 + 2, tl.rsqrt(tl.sum(squares, 0) / width + eps))


@triton.jit
def normalise(x_ptr, weight_ptr, bias_ptr, y_ptr, row_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    base, offset = tl.load(row_ptr + row * 3), tl.load(row_ptr + row * 3 + 1)
    scale = tl.load(row_ptr + row * 3 + 2)
    x = tl.load(x_ptr + row.to(tl.int64) * width + at, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
    y = ((x - base) - offset) * scale * weight + bias
    tl.store(y_ptr + row.to(tl.int64) * width + at, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        weight, bias, eps = self.norm.weight, self.norm.bias, self.norm.eps
        rows, width = x.shape[0], weight.numel()
        blocks = triton.cdiv(width, 8192)
        mean, rest, squares = torch.empty(3, rows, blocks, device=x.device)
        statistics = torch.empty(rows, 3, device=x.device)
        y = torch.empty_like(x)
        grid = (blocks, rows)
        block_statistics[grid](x, mean, rest, squares, width, blocks, BLOCK=8192, num_warps=8)
        size = triton.next_power_of_2(blocks)
        merge[(rows,)](mean, rest, squares, statistics, width, blocks, eps, BLOCK=8192, BLOCKS=size)
        normalise[grid](x, weight, bias, y, statistics, width, BLOCK=8192, num_warps=8)
        return y
