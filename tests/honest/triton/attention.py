"""Causal attention in fp32: one program a block of queries, a running softmax over the keys up to them."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, y_ptr, length, width, scale, BM: tl.constexpr, BN: tl.constexpr, WIDTH: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * width
    first = tl.program_id(0) * BM
    query = first + tl.arange(0, BM)
    lane = tl.arange(0, WIDTH)
    part = tl.arange(0, 16)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    y = tl.zeros((BM, WIDTH), tl.float32)
    for start in range(0, tl.minimum(first + BM, length), BN):
        key = start + tl.arange(0, BN)
        score = tl.zeros((BM, BN), tl.float32)
        # Scaled sums of 16 products each: one sum of all of them would round most additions at its full size.
        for at in tl.static_range(0, WIDTH, 16):
            there = (at + part < width)[None, :]
            rows = q_ptr + head + query[:, None] * width + at + part[None, :]
            q = tl.load(rows, mask=(query < length)[:, None] & there, other=0.0)
            rows = k_ptr + head + key[:, None] * width + at + part[None, :]
            k = tl.load(rows, mask=(key < length)[:, None] & there, other=0.0)
            score += tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        # Key 0 is seen by every query, so that no row of the first block is without a finite maximum.
        score = tl.where((key[None, :] <= query[:, None]) & (key < length)[None, :], score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        power = tl.exp(score - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(power, 1)
        inside = (key < length)[:, None] & (lane < width)[None, :]
        v = tl.load(v_ptr + head + key[:, None] * width + lane[None, :], mask=inside, other=0.0)
        y = tl.dot(power, v, y * shrink[:, None], input_precision="ieee")
        top = higher
    inside = (query < length)[:, None] & (lane < width)[None, :]
    tl.store(y_ptr + head + query[:, None] * width + lane[None, :], y / total[:, None], mask=inside)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        y = torch.empty_like(q)
        batch, heads, length, width = q.shape
        grid = (triton.cdiv(length, 64), batch * heads)
        size = max(16, triton.next_power_of_2(width))  # the least a dot takes
        attention[grid](q, k, v, y, length, width, width**-0.5, BM=64, BN=32, WIDTH=size, num_warps=8, num_stages=2)
        return y
