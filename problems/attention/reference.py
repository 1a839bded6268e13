"""Causal attention, long enough that the scores must not be written to memory."""

import torch
from torch import nn
from torch.nn import functional

batch_size = 4
heads = 32
length = 4096
head_dim = 128


class Model(nn.Module):
    def forward(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(batch_size, heads, length, head_dim) for _ in range(3)]


def get_init_inputs():
    return []
