"""Weight and bias on every element, initialised to one and zero."""

import torch
from torch import nn

rows = 4096
width = 8192


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x * self.weight + self.bias


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
