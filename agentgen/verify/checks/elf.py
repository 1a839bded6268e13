"""What a shared library takes from others and what it offers, read as the loader does: from its dynamic segment.

Section headers are for debuggers: the loader never looks at them, so they may say anything, and are not read here.
Not covered: other executable formats than ELF.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

MAGIC = b"\x7fELF"
MAX_BYTES = 64 << 20
_MAX_ENTRIES = 100_000
"""Symbols or relocations; 0.1 ms each. An extension built on torch's headers without optimisation has 3,000."""
T = TypeVar("T")


class UnreadableLibrary(Exception):
    """No library that could be read to its end; says why."""


@dataclass(frozen=True)
class Symbols:
    """Names, as the linker knows them: C++ names are mangled."""

    imports: frozenset[str]
    """Taken from other libraries when this one is loaded, or at the first call."""
    exports: frozenset[str]


def read_symbols(content: bytes) -> Symbols:
    """Reads a shared library.

    Raises:
        UnreadableLibrary: it is none, is damaged, or has more symbols than any kernel's library.
    """
    if len(content) > MAX_BYTES:
        raise UnreadableLibrary(f"{len(content) >> 20} MiB are too many for a kernel's library")
    try:
        dynamic = _dynamic(content)
        exports = {s.name for s in _some(dynamic.iter_symbols()) if s["st_shndx"] != "SHN_UNDEF"}
        # Not from the symbol table: its length is only known from a hash table that need not list what is imported.
        wanted = {r["r_info_sym"] for r in _some(_relocations(dynamic)) if r["r_info_sym"]}
        symbols = [dynamic.get_symbol(index) for index in wanted]
        imports = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF"}
    except UnreadableLibrary:
        raise
    except Exception as error:
        # Whoever made the file may have made it for this reader, which then fails in any way.
        raise UnreadableLibrary(f"damaged: {type(error).__name__}: {error}") from error
    return Symbols(frozenset(imports), frozenset(exports))


def _dynamic(content: bytes) -> Any:
    elf = bytearray(content)
    is_64_bit = elf[4] == 2
    elf[slice(0x28, 0x30) if is_64_bit else slice(0x20, 0x24)] = bytes(8 if is_64_bit else 4)  # e_shoff
    elf[slice(0x3C, 0x40) if is_64_bit else slice(0x30, 0x34)] = bytes(4)  # e_shnum, e_shstrndx
    for segment in ELFFile(io.BytesIO(elf)).iter_segments():
        if isinstance(segment, DynamicSegment):
            return segment
    raise UnreadableLibrary("it has no dynamic segment")


def _relocations(dynamic: Any) -> Iterator[Any]:
    for table in dynamic.get_relocation_tables().values():
        # RELR entries are addresses, without symbols.
        yield from (r for r in table.iter_relocations() if "r_info_sym" in r.entry)


def _some(entries: Iterable[T]) -> list[T]:
    taken = list(islice(entries, _MAX_ENTRIES + 1))
    if len(taken) > _MAX_ENTRIES:
        raise UnreadableLibrary(f"over {_MAX_ENTRIES} symbols or relocations are too many for a kernel's library")
    return taken
