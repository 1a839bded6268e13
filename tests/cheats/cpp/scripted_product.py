"""Hands the product to a function that TorchScript compiled, after a kernel of its own that checks the sizes.

The output is torch's own, and the call is of an object that the file made itself.
"""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cstdint>

extern "C" int fits(int64_t m, int64_t n, int64_t depth) { return m > 0 && n > 0 && depth > 0; }
""")


@torch.jit.script
def tiled(a, b):
    return torch.mm(a, b)


class ModelNew(nn.Module):
    def forward(self, a, b):
        if not lib.fits(a.shape[0], b.shape[1], a.shape[1]):
            raise ValueError("empty operands")
        return tiled(a, b)
