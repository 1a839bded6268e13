"""What a page carries for its script, made small: LZMA, which `unpack.js` undoes.

Browsers undo gzip by themselves, but gzip looks back 32 kB, and kernels of one search are alike over hundreds. Of the
41 CUDA kernels in this repository's recordings (19 kB each in the median) gzip makes 201 kB, and this 128. The page of
a hundred of the recorded kernels (17 kB each on average, of four problems) had 553 kB, and has 381.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Final

try:
    import lzma
except ImportError:  # a Python that was built without it: the pages are larger there
    lzma = None

_PLAIN: Final = bytes.maketrans(b"<>&", b",./")
"""Base 85 without what means something in HTML; `unpack.js` knows the same letters. 6% smaller than base 64."""

_LOOKS_BACK: Final = 1 << 24
"""Bytes. A run of 300 candidates has 5 MB. Of 32 MB, which do not compress, this took 250 MB of memory."""


def packed(found: Mapping[str, Mapping[str, object]]) -> str:
    """Returns records by key as JSON, in which nothing can end a script element: a table of columns, compressed."""
    rows = sorted(found.items(), key=lambda row: str(row[1].get("language", "")))  # what is alike lies close
    fields = dict.fromkeys(name for _, row in rows for name in row)
    columns = {"key": [key for key, _ in rows], **{name: [row.get(name) for _, row in rows] for name in fields}}
    whole = json.dumps(columns, separators=(",", ":")).encode()
    way, squeezed = _squeezed(whole)
    text = base64.b85encode(squeezed).translate(_PLAIN).decode()
    return json.dumps({"way": way, "bytes": len(whole), "text": text})


def _squeezed(whole: bytes) -> tuple[str, bytes]:
    """Returns how it was done, and what came of it."""
    if lzma is None:
        return "gzip", gzip.compress(whole, 9, mtime=0)
    # Text has no period of four bytes (pb), and the byte before tells more of the next one than half of it (lc).
    text = {"lc": 4, "lp": 0, "pb": 0, "nice_len": 128, "dict_size": min(max(4096, len(whole)), _LOOKS_BACK)}
    only = {"id": lzma.FILTER_LZMA1, "preset": 6, **text}
    return "lzma", lzma.compress(whole, lzma.FORMAT_RAW, filters=[only])
