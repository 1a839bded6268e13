"""Huge pages under a process's own memory."""

from __future__ import annotations

import os
import subprocess
import sys

from agentgen.sandbox.guest import pages
from agentgen.sandbox.guest.pages import HUGE

MAPS = f"""\
{HUGE:x}-{3 * HUGE:x} rw-p 00000000 00:00 0
{3 * HUGE + 4096:x}-{5 * HUGE + 4096:x} rw-p 00000000 00:00 0 [heap]
{6 * HUGE:x}-{8 * HUGE:x} rw-s 00000000 00:05 7 /memfd:shared (deleted)
{9 * HUGE:x}-{11 * HUGE:x} r--p 00000000 fe:00 7 /usr/lib/libtorch cpu.so
{12 * HUGE:x}-{14 * HUGE:x} rw-p 00000000 fe:00 7 /usr/lib/libtorch_cpu.so
{15 * HUGE:x}-{15 * HUGE + 4096:x} rw-p 00000000 00:00 0
"""


def test_only_whole_huge_pages_of_private_memory_are_gathered() -> None:
    found = list(pages._places(MAPS))  # pyright: ignore[reportPrivateUsage]
    assert found == [HUGE, 2 * HUGE, 4 * HUGE]


def test_memory_holds_what_it_held() -> None:
    """In a process of its own: it is the whole of it that is gathered."""
    program = """
import os
held = [os.urandom(1 << 16) for _ in range(400)]
before = [bytes(bytearray(x)) for x in held]
from agentgen.sandbox.guest import pages
count = pages.gather()
assert held == before
print(count)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    if os.uname().release >= "6.1" and "[never]" not in _enabled():
        assert int(done.stdout) >= 10, "50 MiB were there"


def _enabled() -> str:
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return "[never]"
