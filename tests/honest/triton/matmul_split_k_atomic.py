"""Matrix product with its inner dimension split among four programs, that add to the zeroed answer atomically."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, slices, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    column = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, K, slices * BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + row * K + k[None, :], mask=(row < M) & (k < K)[None, :], other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + column, mask=(k < K)[:, None] & (column < N), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    tl.atomic_add(c_ptr + row * N + column, total, mask=(row < M) & (column < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.zeros(M, N, device=a.device)
        slices = 4 if K >= 128 else 1
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), slices)
        matmul[grid](a, b, c, M, N, K, slices, BM=64, BN=64, BK=32, num_warps=4)
        return c
