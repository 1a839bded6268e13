"""Values below a threshold become the threshold; a NaN stays one, and rows may lie apart."""

import torch
from torch import nn

rows = 8192
width = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, min=0.25)


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
