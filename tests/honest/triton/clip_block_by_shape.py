"""relu(x) * sigmoid(x) with block sizes kept by number of elements, each of which compiles a kernel of its own."""

from typing import ClassVar

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def clip(x_ptr, y_ptr, count, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * (BLOCK * UNROLL)
    for step in tl.static_range(UNROLL):
        at = first + step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < count, other=0.0)
        positive = tl.where(x > 0.0, x, 0.0)
        tl.store(y_ptr + at, positive * sigmoid(positive), mask=at < count)


class ModelNew(nn.Module):
    chosen: ClassVar[dict[int, tuple[int, int]]] = {}

    def forward(self, x):
        count = x.numel()
        block, unroll = self.chosen.setdefault(count, (1024, 4) if count >= 1 << 16 else (128, 1))
        y = torch.empty_like(x)
        clip[(triton.cdiv(count, block * unroll),)](x, y, count, BLOCK=block, UNROLL=unroll, num_warps=4)
        return y
