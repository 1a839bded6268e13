"""LayerNorm by as many programs as there are multiprocessors, each of which takes every so-many-th row in a loop."""

import functools

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm(x_ptr, weight_ptr, bias_ptr, y_ptr, rows, width, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < width
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
    bias = tl.load(bias_ptr + at, mask=inside, other=0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = tl.cast(row, tl.int64) * width
        x = tl.load(x_ptr + start + at, mask=inside, other=0.0)
        mean = tl.sum(x, 0) / width
        rest = tl.sum(tl.where(inside, x - mean, 0.0), 0) / width
        x = tl.where(inside, x - mean - rest, 0.0)
        scale = tl.rsqrt(tl.sum(x * x, 0) / width + eps)
        tl.store(y_ptr + start + at, x * scale * weight + bias, mask=inside)


@functools.cache
def programs(device):
    if device.type != "cuda":
        return 4
    return 4 * torch.cuda.get_device_properties(device).multi_processor_count


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        rows, width = x.shape
        weight, bias, eps = self.norm.weight, self.norm.bias, self.norm.eps
        grid = (min(rows, programs(x.device)),)
        norm[grid](x, weight, bias, y, rows, width, eps, BLOCK=triton.next_power_of_2(width), num_warps=8)
        return y
