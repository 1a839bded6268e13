"""Where a process's time goes, as the kernel sees it: perf_event_open(2) from outside. The process and its descendants
are interrupted by the kernel and do not notice; they can neither stop it, nor see it, nor say otherwise.

What a child process does counts too, whatever session it is in: the counter is inherited.

Not covered: time inside the kernel; machines whose administrator forbids it (kernel.perf_event_paranoid above 2, the
seccomp filter of Docker), where `Perf` raises OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import struct
from collections import Counter

from agentgen.sandbox.maps import executables, name_at

PERIOD_NS = 2_000_000
"""Of processor time between two samples: 2-5 us each, so 0.2%."""
ELSEWHERE = "[another process]"
_PAGES = 16
"""Of a ring: 2,700 samples, 5 s of one processor."""
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = 112
"""PERF_ATTR_SIZE_VER5."""
_SOFTWARE, _TASK_CLOCK = 1, 1
_IP_AND_TID = 1 | 2
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_CLOSE_ON_EXEC = 8
_HEAD, _TAIL = 1024, 1032
"""Of the ring, in its first page (struct perf_event_mmap_page)."""
_SAMPLE = 9


class Perf:
    """Samples of one process and of whatever it starts from now on: attach before it has threads."""

    def __init__(self, pid: int) -> None:
        """Opens one counter on each processor.

        Raises:
            OSError: not allowed here, or no such process.
        """
        self._pid = pid
        self._rings: list[tuple[int, mmap.mmap]] = []
        try:
            for cpu in sorted(os.sched_getaffinity(0)):
                descriptor = _open(pid, cpu)
                self._rings.append((descriptor, mmap.mmap(descriptor, (1 + _PAGES) * mmap.PAGESIZE)))
        except OSError:
            self.close()
            raise

    def take(self) -> Counter[str]:
        """Returns samples since the last call, by full path of the file that the code lies in."""
        with contextlib.suppress(OSError):  # it has just ended
            ranges = executables(self._pid)
            return Counter(
                name_at(ip, ranges) if pid == self._pid else ELSEWHERE
                for _, ring in self._rings
                for ip, pid in _drain(ring)
            )
        return Counter()

    def forget(self) -> None:
        """Drops the samples since the last call: whose they are takes 2 ms to find out."""
        for _, ring in self._rings:
            ring[_TAIL : _TAIL + 8] = ring[_HEAD : _HEAD + 8]

    def close(self) -> None:
        """Ends it."""
        for descriptor, ring in self._rings:
            ring.close()
            os.close(descriptor)
        self._rings.clear()


def _open(pid: int, cpu: int) -> int:
    flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
    fields = struct.pack("=IIQQQQQ", _SOFTWARE, _ATTRIBUTES, _TASK_CLOCK, PERIOD_NS, _IP_AND_TID, 0, flags)
    attributes = ctypes.create_string_buffer(fields, _ATTRIBUTES)
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(f"the number of perf_event_open on {platform.machine()} is not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(number, attributes, pid, cpu, -1, _CLOSE_ON_EXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open is refused here")
    return descriptor


def _drain(ring: mmap.mmap) -> list[tuple[int, int]]:
    """Takes address and process id of each sample out of a ring."""
    (head,) = struct.unpack_from("=Q", ring, _HEAD)
    (tail,) = struct.unpack_from("=Q", ring, _TAIL)
    size = _PAGES * mmap.PAGESIZE
    data = memoryview(ring)[mmap.PAGESIZE :]
    twice = bytes(data) * 2  # a record may go over the end
    data.release()
    found: list[tuple[int, int]] = []
    while tail < head:
        at = tail % size
        kind, _, length = struct.unpack_from("=IHH", twice, at)
        if kind == _SAMPLE:
            ip, pid, _ = struct.unpack_from("=QII", twice, at + 8)
            found.append((ip, pid))
        tail += max(length, 8)
    struct.pack_into("=Q", ring, _TAIL, head)
    return found
