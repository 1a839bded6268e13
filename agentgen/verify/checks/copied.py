"""Whether a library is an installed math library in disguise: by its machine code, page by page. Names can be changed,
and symbols hidden, without touching what computes."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

SMALLEST = 256 << 10
"""Bytes. What g++ makes of a candidate's source is a tenth of it; an extension on torch's headers is a megabyte."""
PAGE = 4096
MANY = 16
"""Pages in common: libraries that link the same archive share a few."""


def copied_from(content: bytes) -> str:
    """Returns what of an installed math library is in a library's file; nothing if there is none."""
    if len(content) < SMALLEST:
        return ""
    known = _known()
    found = [known[page] for page in _pages(content) if page in known]
    return f"holds {len(found)} pages of {max(set(found), key=found.count)}" if len(found) >= MANY else ""


@functools.cache
def _known() -> dict[int, str]:
    """Pages of what is installed. Reads some hundred MB, once, if a candidate brings a large library."""
    return {page: file.name for file in _libraries() for page in _pages(file.read_bytes())}


def _libraries() -> Iterator[Path]:
    packages = Path(sysconfig.get_paths()["platlib"])
    for folder in (packages / "numpy.libs", packages / "scipy.libs", Path(torch.__file__).parent / "lib"):
        for pattern in ("*blas*", "*mkl*", "*torch_cpu*", "*dnnl*"):
            yield from (file for file in folder.glob(f"lib{pattern}.so*") if file.is_file())


def _pages(content: bytes) -> Iterator[int]:
    for at in range(0, len(content) - PAGE + 1, PAGE):
        page = content[at : at + PAGE]
        if page.count(page[0]) < PAGE // 2:  # padding is everywhere
            yield hash(page)
