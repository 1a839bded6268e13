"""The gated half of a transformer's feed-forward block: two products that share their left side, joined elementwise."""

import torch
from torch import nn
from torch.nn import functional

tokens = 8192
hidden = 4096
intermediate = 11008


class Model(nn.Module):
    def __init__(self, hidden, intermediate):
        super().__init__()
        self.gate = nn.Linear(hidden, intermediate, bias=False, dtype=torch.bfloat16)
        self.up = nn.Linear(hidden, intermediate, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return functional.silu(self.gate(x)) * self.up(x)


def get_inputs():
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16)]


def get_init_inputs():
    return [hidden, intermediate]
