"""Candidates that fall, hang, or use up what they can get: an honest kernel with a fault in front of each call.

Memory is asked for, not written to: a soak shares its machine. (In large blocks: on a GPU, where address space has no
limit, there are 128 TiB of it, and each block costs a page.) What never ends takes the judge's whole patience with a
first call (`verify.session.FIRST_CALL_S`, 90 s).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Final

from mix import Entry, device_type

from agentgen.records.problem import DeviceType

QUICK: Final[dict[DeviceType, tuple[str, ...]]] = {
    "cpu": ("segfault", "abort", "memory", "processes", "flood", "socket"),
    "cuda": ("segfault", "abort", "memory", "processes", "flood", "socket", "trap", "wild"),
}
ENDLESS: Final[dict[DeviceType, tuple[str, ...]]] = {
    "cpu": ("loop", "stopped"),
    "cuda": ("loop", "stopped", "kernel"),
}
ON_GPU = ("trap", "wild", "kernel")
_HOST = r'''
import agentgen.jit

faults = agentgen.jit.cpp(r"""
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

static char* volatile held;
static char text[1 << 20];

extern "C" void segfault(int64_t) { *(volatile char*)(held) = 1; }
extern "C" void abort_(int64_t) { abort(); }
extern "C" void memory(int64_t) { for (;;) held = new char[1ll << 32]; }
extern "C" void loop(int64_t) { for (volatile int on = 1; on;); }
extern "C" void stopped(int64_t) { raise(SIGSTOP); }
extern "C" void processes(int64_t) {  // 256, half of them in sessions of their own, and the first falls
  pid_t own = getpid();
  for (int i = 0; i < 8; i++)
    if (!fork() && i % 2) setsid();
  if (getpid() != own)
    for (;;) pause();
  sleep(1);
  abort();
}
extern "C" void flood(int64_t) {
  memset(text, 'x', sizeof text);
  for (int i = 0; i < 512; i++)
    for (long left = sizeof text; left > 0;) left -= write(1 + i % 2, text, left);
  abort();
}
extern "C" void socket_(int64_t) {
  struct stat seen;
  for (int fd = 3; fd < 1024; fd++)
    if (!fstat(fd, &seen) && S_ISSOCK(seen.st_mode)) close(fd);
  for (;;) pause();
}
""")
'''
_DEVICE = r'''
import agentgen.jit

faults = agentgen.jit.cuda(r"""
extern "C" __global__ void trap(int n) { asm volatile("trap;"); }
extern "C" __global__ void wild(int n) { *(volatile int*)(1ll << 50) = n; }
extern "C" __global__ void kernel(int n) { for (volatile int on = 1; on;); }
""")
'''
_MODEL = """

class ModelNew(ModelNew):
    def forward(self, *inputs):
        faults.{call}
        return super().forward(*inputs)
"""
_NAMES = {"abort": "abort_", "socket": "socket_"}
"""Of functions that would have the name of one in C's library."""


def faulty(honest: Entry, fault: str) -> Entry:
    """Returns an honest candidate with a fault in front of each call."""
    name = _NAMES.get(fault, fault)
    device = fault in ON_GPU
    call = f"{name}[1, 1](1)" if device else f"{name}(1)"
    source = honest.candidate.source + (_DEVICE if device else _HOST) + _MODEL.format(call=call)
    candidate = honest.candidate.model_copy(update={"source": source})
    return Entry(f"{fault} in {honest.name}", fault, honest.problem, candidate)


def faults(honest: Sequence[Entry], device: str, quick: int, endless: int) -> list[Entry]:
    """Returns faults of each kind in turn, in honest candidates in turn, where their `ModelNew` can be derived from."""
    kind = device_type(device)
    honest = [entry for entry in honest if "class ModelNew(" in entry.candidate.source]
    wanted = [*islice(cycle(QUICK[kind]), quick), *islice(cycle(ENDLESS[kind]), endless)]
    return [faulty(entry, fault) for entry, fault in zip(cycle(honest), wanted, strict=False)]
