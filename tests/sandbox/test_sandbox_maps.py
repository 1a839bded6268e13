"""Executable ranges, as the kernel tells them."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from pathlib import Path

import pytest

from agentgen.sandbox.maps import ANONYMOUS, executables


def names() -> dict[str, bool]:
    return {executable.name: executable.deleted for executable in executables()}


def test_a_function_lies_in_its_file_s_range() -> None:
    address = ctypes.cast(ctypes.CDLL(None).memcpy, ctypes.c_void_p).value
    assert address
    (inside,) = [e for e in executables() if e.start <= address < e.end]
    assert os.path.basename(inside.name).startswith("libc")
    assert not inside.deleted
    assert executables(os.getpid()) == executables()


def test_memory_without_a_file_is_anonymous_only_while_it_may_be_executed() -> None:
    before = sum(e.end - e.start for e in executables() if e.name == ANONYMOUS)
    size = 3 * mmap.PAGESIZE
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC):
        assert sum(e.end - e.start for e in executables() if e.name == ANONYMOUS) == before + size
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE):
        assert sum(e.end - e.start for e in executables() if e.name == ANONYMOUS) == before


@pytest.mark.parametrize("name", ["a library.so", "two\nlines.so", "back\\slash.so"])
def test_a_removed_file_keeps_its_name_whatever_that_is(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    libraries = (e.name for e in executables() if not e.deleted)
    shutil.copyfile(next(name for name in libraries if os.path.basename(name).startswith("libc.")), file)
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)
    with mapped:
        assert names()[str(file)] is False
        file.unlink()
        assert names()[str(file)] is True


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    with pytest.raises(FileNotFoundError):
        executables(1 << 30)
