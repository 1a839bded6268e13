"""Softmax over long rows."""

import torch
from torch import nn

batch_size = 4096
dim = 65536


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
