"""LayerNorm of values far from zero: E[x^2] - E[x]^2 cancels here in single precision."""

import torch
from torch import nn

batch_size = 16
features = 64
height = 256
width = 256


class Model(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [1000 + 0.1 * torch.randn(batch_size, features, height, width)]


def get_init_inputs():
    return [[features, height, width]]
