"""A depthwise convolution: 9 multiplications an element, so memory decides."""

import torch
from torch import nn

batch_size = 16
channels = 64
height = 512
width = 512
kernel_size = 3
padding = 1


class Model(nn.Module):
    def __init__(self, channels, kernel_size, padding):
        super().__init__()
        self.conv = nn.Conv2d(
            channels, channels, kernel_size, padding=padding, groups=channels, bias=False, dtype=torch.bfloat16
        )

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, channels, height, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [channels, kernel_size, padding]
