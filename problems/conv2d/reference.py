"""The first layer of AlexNet: a large strided convolution with few input channels."""

import torch
from torch import nn

batch_size = 100
in_channels = 3
out_channels = 96
height = 224
width = 224
kernel_size = 11
stride = 4
padding = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding]
