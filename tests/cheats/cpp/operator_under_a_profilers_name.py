"""Registers an operator of its own in the namespace of torch's profiler; what it does is have torch multiply.

The output is torch's own; a list of operators shows one of the profiler's, which all such lists leave out.
"""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cstdint>

extern "C" int fits(int64_t m, int64_t n, int64_t depth) { return m > 0 && n > 0 && depth > 0; }
""")

library = torch.library.Library("profiler", "FRAGMENT")
library.define("range(Tensor a, Tensor b) -> Tensor")
library.impl("range", lambda a, b: a @ b, "CPU")


class ModelNew(nn.Module):
    def forward(self, a, b):
        if not lib.fits(a.shape[0], b.shape[1], a.shape[1]):
            raise ValueError("empty operands")
        return torch.ops.profiler.range(a, b)
