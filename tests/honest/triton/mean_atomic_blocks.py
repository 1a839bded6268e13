"""Mean by several programs a row, each of which adds its share to the zeroed answer atomically, in any order."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def mean(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    lane = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    # Blocks of a row are dealt out in turn: neighbours go to different programs.
    for start in range(tl.program_id(1) * BLOCK, width, tl.num_programs(1) * BLOCK):
        sums += tl.load(x_ptr + row + start + lane, mask=start + lane < width, other=0.0)
    tl.atomic_add(y_ptr + tl.program_id(0), tl.sum(sums, 0) / width)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        y = torch.zeros(rows, device=x.device)
        mean[(rows, max(1, min(8, width // 1024)))](x, y, width, BLOCK=1024, num_warps=4)
        return y
