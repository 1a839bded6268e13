"""Mean with Kahan's compensation in every lane of a block, and the lanes' sums and losses added up at the end."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    lane = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    lost = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        value = tl.load(x_ptr + row + start + lane, mask=start + lane < width, other=0.0) - lost
        higher = sums + value
        lost = (higher - sums) - value
        sums = higher
    total = tl.sum(sums.to(tl.float64) - lost.to(tl.float64), 0)
    tl.store(y_ptr + tl.program_id(0), (total / width).to(tl.float32))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        y = torch.empty(rows, dtype=x.dtype, device=x.device)
        mean[(rows,)](x, y, width, BLOCK=1024, num_warps=4)
        return y
