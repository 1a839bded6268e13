"""Weight and bias with three configurations of rows and columns a program, of which the autotuner keeps the fastest."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.autotune(
    configs=[
        triton.Config({"ROWS": 1, "COLUMNS": 1024}, num_warps=4),
        triton.Config({"ROWS": 4, "COLUMNS": 512}, num_warps=4),
        triton.Config({"ROWS": 2, "COLUMNS": 2048}, num_warps=8),
    ],
    key=["rows", "width"],
)
@triton.jit
def affine(x_ptr, weight_ptr, bias_ptr, y_ptr, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < width)
    at = row.to(tl.int64) * width + column
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    weight = tl.load(weight_ptr + column, mask=column < width, other=0.0)
    bias = tl.load(bias_ptr + column, mask=column < width, other=0.0)
    tl.store(y_ptr + at, x * weight + bias, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        y = torch.empty_like(x)
        rows, width = x.shape

        def grid(chosen):
            return triton.cdiv(rows, chosen["ROWS"]), triton.cdiv(width, chosen["COLUMNS"])

        affine[grid](x, self.weight, self.bias, y, rows, width)
        return y
