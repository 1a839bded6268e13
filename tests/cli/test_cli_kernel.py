"""The language of a candidate is guessed from its text."""

from __future__ import annotations

import pytest

from agentgen.cli.kernel import guess
from agentgen.records.candidate import Language


@pytest.mark.parametrize(
    ("source", "language"),
    [
        ("import triton\n@triton.jit\ndef kernel(x): ...", Language.TRITON),
        ("from triton import autotune, jit\n@jit\ndef kernel(x): ...", Language.TRITON),
        ("from agentgen import jit\nk = jit.cuda(SOURCE)", Language.CUDA),
        ("load_inline(name='x', cpp_sources=a, cuda_sources=b)", Language.CUDA),
        ("TEXT = '__global__ void k() {}'\nload_inline('x', TEXT)", Language.CUDA),
        ("from agentgen import jit\nlib = jit.cpp(SOURCE)", Language.CPP),
        ("load_inline(name='x', cpp_sources=a)", Language.CPP),
        ("import torch\nclass ModelNew: ...", None),
        ("def (", None),
    ],
)
def test_guess(source: str, language: Language | None) -> None:
    assert guess(source) == language
