"""A library is read as the loader reads it, and a hostile one is refused, not believed."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgen import jit
from agentgen.verify.checks.elf import MAX_BYTES, Symbols, UnreadableLibrary, read_symbols

SOURCE = """
#include <math.h>
#include <stdlib.h>
static void* (*volatile through)(size_t) = malloc;
extern "C" double mine(double x) { free(through(8)); return hypot(x, 1.0); }
"""


@pytest.fixture(scope="module", name="file")
def _file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        try:
            jit.cpp(SOURCE)
        except RuntimeError as error:
            pytest.skip(str(error))
    return next(folder.rglob("*.so"))


def test_functions_called_and_pointed_to_are_imports(file: Path) -> None:
    symbols = read_symbols(file.read_bytes())
    assert {"hypot", "free", "malloc"} <= symbols.imports
    assert "mine" in symbols.exports
    assert not symbols.imports & symbols.exports


def test_section_headers_hide_nothing(file: Path, tmp_path: Path) -> None:
    content = bytearray(file.read_bytes())
    start, size = int.from_bytes(content[0x28:0x30], "little"), len(content)
    content[start:size] = bytes(size - start)  # all headers empty: there are "no" symbols
    assert read_symbols(bytes(content)) == read_symbols(file.read_bytes())
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", stripped, file], check=True)
    assert read_symbols(stripped.read_bytes()) == read_symbols(file.read_bytes())


def test_what_is_no_library_is_said_to_be_none() -> None:
    for content in (b"", b"\x7fELF", b"\x7fELF" + bytes(100), b"#!/bin/sh\n"):
        with pytest.raises(UnreadableLibrary, match="damaged"):
            read_symbols(content)
    with pytest.raises(UnreadableLibrary, match="too many"):
        read_symbols(b"\x7fELF" + bytes(MAX_BYTES))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_library_is_read_or_refused(file: Path, data: st.DataObject) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        # In the headers and tables at the front, where a change matters.
        content[data.draw(st.integers(5, min(len(content), 2048) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UnreadableLibrary):
        assert isinstance(read_symbols(bytes(content)), Symbols)
