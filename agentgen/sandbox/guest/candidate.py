"""Loading a candidate: its module, its model under a public seed, its parameters and buffers, torch's settings."""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

MODULE_NAME = "candidate"


def set_arithmetic(arithmetic: str) -> None:
    """Lets torch's own matmuls and convolutions of fp32 tensors use TF32 unless the problem's arithmetic is fp32: FP16
    has no more bits, BF16 fewer."""
    allow = arithmetic != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = allow
    torch.backends.cudnn.allow_tf32 = allow


def load_module(source: str, path: str, name: str = MODULE_NAME) -> types.ModuleType:
    """Runs module text as a module of its own. It is written to `path` first, because Triton reads a kernel's source
    from its file; at once, because a guest of the same candidate may be reading it.

    Raises:
        Whatever the text raises.
    """
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(source)
    os.replace(beside, path)
    linecache.checkcache(path)
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses and pickling inside the candidate look it up
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def construct(module: types.ModuleType, init_args: Sequence[Any], seed: int, device: str) -> nn.Module:
    """Builds `ModelNew(*init_args)` under a public seed on `device`, in evaluation mode."""
    torch.manual_seed(seed)
    with torch.device(device):
        model: nn.Module = module.ModelNew(*init_args)
    return model.to(device).eval()


def state(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields parameters and buffers (persistent or not) with their names."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def set_state(model: nn.Module, values: Mapping[str, torch.Tensor], *, load: bool) -> None:
    """Gives parameters and buffers new values, by `load_state_dict` or in place. What is not persistent is in no state
    dict, and always copied."""
    rest = dict(values)
    if load:
        known = model.state_dict()
        model.load_state_dict({name: rest.pop(name) for name in list(rest) if name in known}, strict=False)
    for name, tensor in state(model):
        if name in rest:
            tensor.copy_(rest[name])


def digest(tensor: torch.Tensor) -> str:
    """Returns a hash of shape, dtype and content, by which a renamed parameter is found again."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return hashlib.sha256(f"{tuple(tensor.shape)} {tensor.dtype}".encode() + content).hexdigest()[:16]
