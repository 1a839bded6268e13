"""The first block of AlexNet: a large strided convolution, ReLU, an overlapping max-pool."""

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
pool_size = 3
pool_stride = 2


class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.pool = nn.MaxPool2d(pool_size, stride=pool_stride)

    def forward(self, x):
        return self.pool(torch.relu(self.conv(x)))


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, pool_size, pool_stride]
