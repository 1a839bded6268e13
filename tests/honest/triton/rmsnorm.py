"""RMSNorm over the channels of an image: a program holds all channels of 128 neighbouring pixels."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rmsnorm(x_ptr, y_ptr, features, pixels, eps, FEATURES: tl.constexpr, PIXELS: tl.constexpr):
    image = tl.program_id(1).to(tl.int64) * features * pixels
    feature = tl.arange(0, FEATURES)[:, None]
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)[None, :]
    at = image + feature * pixels + pixel
    inside = (feature < features) & (pixel < pixels)
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / features + eps)
    tl.store(y_ptr + at, (x * scale[None, :]).to(tl.bfloat16), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        y = torch.empty_like(x)
        batch, features, height, width = x.shape
        pixels = height * width
        grid = (triton.cdiv(pixels, 128), batch)
        rmsnorm[grid](x, y, features, pixels, self.eps, FEATURES=triton.next_power_of_2(features), PIXELS=128)
        return y
