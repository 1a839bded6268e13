"""A dilated max-pool over volumes: a program takes 1024 outputs of one channel of one sample."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def maxpool3d(
    x_ptr, y_ptr, D, H, W, P, Q, R,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    volume = tl.program_id(1).to(tl.int64)
    x_ptr += volume * D * H * W
    y_ptr += volume * P * Q * R
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    front = at // (Q * R) * STRIDE - PADDING
    top = at // R % Q * STRIDE - PADDING
    left = at % R * STRIDE - PADDING
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for i in tl.static_range(KERNEL):
        for j in tl.static_range(KERNEL):
            for k in tl.static_range(KERNEL):
                d, h, w = front + i * DILATION, top + j * DILATION, left + k * DILATION
                inside = (at < P * Q * R) & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                x = tl.load(x_ptr + (d * H + h) * W + w, mask=inside, other=-float("inf"))
                best = tl.maximum(best, x)
    tl.store(y_ptr + at, best, mask=at < P * Q * R)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding, dilation):
        super().__init__()
        self.constants = {"KERNEL": kernel_size, "STRIDE": stride, "PADDING": padding, "DILATION": dilation}
        self.padding, self.span, self.stride = padding, dilation * (kernel_size - 1) + 1, stride

    def forward(self, x):
        batch, channels, *sizes = x.shape
        P, Q, R = ((size + 2 * self.padding - self.span) // self.stride + 1 for size in sizes)
        y = torch.empty(batch, channels, P, Q, R, device=x.device)
        grid = (triton.cdiv(P * Q * R, 1024), batch * channels)
        maxpool3d[grid](x, y, *sizes, P, Q, R, **self.constants, BLOCK=1024)
        return y
