"""A depthwise convolution: a program takes 1024 outputs of one channel of one image."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def depthwise(
    x_ptr, w_ptr, y_ptr, channels, H, W, P, Q, KERNEL: tl.constexpr, PADDING: tl.constexpr, BLOCK: tl.constexpr
):
    plane = tl.program_id(1)
    x_ptr += plane.to(tl.int64) * H * W
    y_ptr += plane.to(tl.int64) * P * Q
    w_ptr += plane % channels * KERNEL * KERNEL
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    top, left = at // Q - PADDING, at % Q - PADDING
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(KERNEL):
        for j in tl.static_range(KERNEL):
            h, w = top + i, left + j
            inside = (at < P * Q) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_ptr + h * W + w, mask=inside, other=0.0).to(tl.float32)
            total += x * tl.load(w_ptr + i * KERNEL + j).to(tl.float32)
    tl.store(y_ptr + at, total.to(tl.bfloat16), mask=at < P * Q)


class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(
            channels, channels, kernel_size, padding=padding, groups=channels, bias=False, dtype=torch.bfloat16
        )

    def forward(self, x):
        w = self.conv.weight
        (batch, channels, H, W), kernel, padding = x.shape, w.shape[2], self.conv.padding[0]
        P, Q = H + 2 * padding - kernel + 1, W + 2 * padding - kernel + 1
        y = torch.empty(batch, channels, P, Q, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(P * Q, 1024), batch * channels)
        depthwise[grid](x, w, y, channels, H, W, P, Q, KERNEL=kernel, PADDING=padding, BLOCK=1024)
        return y
