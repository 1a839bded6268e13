"""Matrix product with tiles numbered in groups of eight rows for the cache, runs of 128 products, and a table of tile
sizes by shape that is kept."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, RUN: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles_down, tiles_across = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile = tl.program_id(0)
    group = tile // (GROUP * tiles_across)
    height = tl.minimum(tiles_down - group * GROUP, GROUP)
    within = tile % (GROUP * tiles_across)
    row = (group * GROUP + within % height) * BM + tl.arange(0, BM)[:, None]
    column = within // height * BN + tl.arange(0, BN)[None, :]
    lane = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for run in range(0, K, RUN):
        part = tl.zeros((BM, BN), tl.float32)
        for step in tl.static_range(0, RUN, BK):
            k = run + step + lane
            a = tl.load(a_ptr + row * K + k[None, :], mask=(row < M) & (k < K)[None, :], other=0.0)
            b = tl.load(b_ptr + k[:, None] * N + column, mask=(k < K)[:, None] & (column < N), other=0.0)
            part = tl.dot(a, b, part, input_precision="ieee")
        total += part
    tl.store(c_ptr + row * N + column, total, mask=(row < M) & (column < N))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.launches = {}

    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        if (M, N) not in self.launches:
            tile = 64 if M * N >= 256 * 256 else 16
            self.launches[M, N] = (tile, (triton.cdiv(M, tile) * triton.cdiv(N, tile),))
        tile, grid = self.launches[M, N]
        c = torch.empty(M, N, dtype=a.dtype, device=a.device)
        matmul[grid](a, b, c, M, N, K, BM=tile, BN=tile, BK=32, RUN=128, GROUP=8, num_warps=4)
        return c
