"""A candidate's text: read as it is, and its language guessed from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgen.cli.kernel import guess, read_source
from agentgen.errors import BadInput
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


def test_a_source_is_read_to_the_byte(tmp_path: Path) -> None:
    """The kernel of an entry is the one that was hashed, whatever ends its lines."""
    file = tmp_path / "kernel.py"
    file.write_bytes("a = 1  # µ\r\nb = 2\r".encode())
    assert read_source(file) == "a = 1  # µ\r\nb = 2\r"
    file.write_bytes(b"\xff")
    with pytest.raises(BadInput, match=r"cannot read the candidate .*kernel.py"):
        read_source(file)
