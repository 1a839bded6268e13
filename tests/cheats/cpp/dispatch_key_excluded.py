"""Excludes the dispatch key of Python's modes round torch's product, so that none of them is asked.

The output is torch's own; a mode stays on the stack and sees nothing but an empty tensor made.
"""

import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
#include <cstdint>

extern "C" void scale(float* c, float factor, int64_t count) {
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) c[i] *= factor;
}
""")


def hidden(owner, *parts):
    return getattr(owner, "".join(parts))


keys = hidden(torch._C, "Dispatch", "Key")
python = hidden(torch._C, "Dispatch", "KeySet")(keys.Python) | hidden(torch._C, "Dispatch", "KeySet")(
    keys.PythonTLSSnapshot
)
plain = hidden(torch._C, "_ExcludeDispatch", "KeyGuard")


class ModelNew(nn.Module):
    def forward(self, a, b):
        with plain(python):
            c = a @ b
        lib.scale(c, 1.0, c.numel())
        return c
