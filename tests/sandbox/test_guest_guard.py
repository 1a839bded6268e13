"""The guarding allocator: memory errors of real programs, each in a process that it may end.

Not covered: kernels that access memory by more than a wall's width from their buffers.
"""

from __future__ import annotations

import ctypes
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgen.errors import PeerClosed
from agentgen.sandbox import guard
from agentgen.sandbox.forked import ProcessGuest
from agentgen.sandbox.process import ProcessSandbox, environment

ROOT = Path(__file__).parents[2]
PRELUDE = """
import ctypes
from agentgen.sandbox.guest import guard

c = ctypes.CDLL(None)
for name in ("malloc", "calloc", "realloc", "aligned_alloc", "memalign"):
    getattr(c, name).restype = ctypes.c_void_p
c.free.argtypes = [ctypes.c_void_p]
c.malloc.argtypes = [ctypes.c_size_t]
c.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
c.malloc_usable_size.argtypes = [ctypes.c_void_p]
c.malloc_usable_size.restype = ctypes.c_size_t

def aligned(nbytes):
    place = ctypes.c_void_p()
    assert c.posix_memalign(ctypes.byref(place), 64, nbytes) == 0
    assert place.value % 64 == 0
    return place.value

def write(address, value=1):
    ctypes.c_char.from_address(address).value = value

def read(address, nbytes=1):
    return ctypes.string_at(address, nbytes)
"""


def run(folder: Path, program: str, side: str = "after") -> subprocess.CompletedProcess[str]:
    text = f"{PRELUDE}\nguard.switch({side!r}, guard.NAN)\n{program}\nprint('the end')"
    variables = environment(folder, preload=guard.library()) | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", text], env=variables, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize(
    ("side", "program", "told"),
    [
        ("after", "write(aligned(8192) + 8192)", "an access 1 bytes past the end of a block of 8192 bytes"),
        ("after", "read(aligned(64) + 64 + 65535)", "an access 65536 bytes past the end of a block of 64 bytes"),
        ("after", "read(c.malloc(8192) + 8192)", "an access 1 bytes past the end of a block of 8192 bytes"),
        ("after", "read(c.calloc(2, 4096) + 8192)", "an access 1 bytes past the end of a block of 8192 bytes"),
        ("before", "read(aligned(100) - 1)", "an access 1 bytes before the start of a block of 100 bytes"),
        (
            "after",
            "p = aligned(400); c.free(p); read(p + 8)",
            "8 bytes into a block of 400 bytes, which had been freed",
        ),
        ("after", "p = c.malloc(5000); c.realloc(p, 9000); read(p)", "of 5000 bytes, which had been freed"),
    ],
    ids=["write past", "read far past", "malloc", "calloc", "before", "freed", "realloc"],
)
def test_an_access_to_a_wall_is_a_fault_that_says_where(tmp_path: Path, side: str, program: str, told: str) -> None:
    ended = run(tmp_path, program, side)
    assert ended.returncode == -signal.SIGSEGV, ended.stderr
    assert told in ended.stderr


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (
            "p = aligned(100); write(p + 100); c.free(p)",
            "1 bytes were written outside a block of 100 bytes, the nearest",
        ),
        ("p = aligned(100); write(p + 103); write(p + 104); guard.check()", "2 bytes were written outside"),
        ("p = aligned(100); ctypes.memmove(p + 100, aligned(100) + 100, 8); c.free(p)", "bytes were written outside"),
        ("p = aligned(100); write(p - 4); c.free(p)", "the nearest 4 bytes before its start"),
    ],
    ids=["free", "check", "copied filling", "before"],
)
def test_a_write_into_the_filling_is_found_later(tmp_path: Path, program: str, told: str) -> None:
    ended = run(tmp_path, program)
    assert ended.returncode == -signal.SIGABRT, ended.stderr
    assert told in ended.stderr


def test_the_filling_and_fresh_memory_are_nan_in_every_float_type(tmp_path: Path) -> None:
    program = "p = aligned(4096 - 40)\nprint(read(p, 4096).hex())\nassert read(c.calloc(1, 5000), 5000) == bytes(5000)"
    ended = run(tmp_path, program)
    assert ended.returncode == 0, ended.stderr
    data = bytes.fromhex(ended.stdout.split()[0])
    for letter, size in (("e", 2), ("f", 4), ("d", 8)):
        numbers = struct.unpack(f"{len(data) // size}{letter}", data)
        assert all(number != number for number in numbers), letter
    halves = struct.unpack(f"{len(data) // 2}H", data)
    assert all(half & 0x7F80 == 0x7F80 and half & 0x7F for half in halves), "bfloat16"


def test_what_an_allocator_must_do_it_does(tmp_path: Path) -> None:
    program = """
small = c.malloc(5000)
ctypes.memset(small, 7, 5000)
large = c.realloc(small, 50000)
assert read(large, 5000) == bytes([7]) * 5000
assert c.malloc_usable_size(large) == 50000
back = c.realloc(large, 10)  # glibc's again
assert read(back, 10) == bytes([7]) * 10
grown = c.realloc(back, 6000)
assert read(grown, 10) == bytes([7]) * 10
assert c.memalign(4096, 10000) % 4096 == 0
assert c.aligned_alloc(1 << 20, 10) % (1 << 20) == 0  # not guarded
assert c.malloc(1 << 60) is None
assert c.posix_memalign(ctypes.byref(ctypes.c_void_p()), 3, 64) == 22
before = c.malloc(10)
blocks = [aligned(n) for n in range(1, 20000)]  # more than are guarded at once
for p in blocks[::2] + blocks[1::2]:
    c.free(p)
guard.check()
again = guard.counts()
assert again.guarded >= 1 << 14, again
assert again.passed_by > 0, again
guard.switch("off", 0)
kept = guard.counts()
c.free(aligned(8192))
c.free(grown)
c.free(before)
assert guard.counts() == kept
"""
    ended = run(tmp_path, program)
    assert ended.returncode == 0, ended.stderr
    assert "the end" in ended.stdout


def test_without_the_library_the_guest_says_so() -> None:
    assert not hasattr(ctypes.CDLL(None), "agentgen_guard")
    from agentgen.sandbox.guest import guard as inside

    with pytest.raises(RuntimeError, match="without the guarding allocator"):
        inside.switch("after", inside.NAN)


# ---- kernels and tensors ---------------------------------------------------------------------------------------------

KERNELS = """
import torch
from agentgen import jit
from agentgen.sandbox.guest import guard

lib = jit.cpp(r'''
#include <cstdint>
extern "C" void scale(const float* x, float* y, int64_t begin, int64_t end) {
#pragma omp parallel for
  for (int64_t i = begin; i < end; ++i) y[i] = 2.0f * x[i];
}
extern "C" float sum(const float* x, int64_t begin, int64_t end) {
  volatile float total = 0.0f;
  for (int64_t i = begin; i < end; ++i) total = total + x[i];
  return total;
}
''')
"""
TRITON = """
import torch, triton
import triton.language as tl
from agentgen.sandbox.guest import guard

@triton.jit
def double(x, y, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (at < n) if MASKED else (at >= 0)
    tl.store(y + at, 2 * tl.load(x + at, mask=mask), mask=mask)

guard.switch("after", guard.NAN)
x = torch.ones(1000)
y = torch.empty(1000)
"""
END = "\nclass ModelNew: ..."
SHARED = "one folder for all guests"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    one = ProcessSandbox("cpu", interpret=True, preload=guard.library())
    one.start(SHARED)  # lives as long as the sandbox, and with it the folder where the kernels are built
    yield one
    one.close()


@pytest.fixture
def guest(sandbox: ProcessSandbox) -> Iterator[ProcessGuest]:
    one = sandbox.start(SHARED)
    yield one
    one.kill()


def load(guest: ProcessGuest, source: str) -> dict[str, object]:
    guest.post({"do": "load", "source": source + END, "arithmetic": "fp32"})
    return guest.answer(60)


@pytest.mark.slow
def test_programs_that_start_in_the_jail_do_not_look_for_the_library(capfd: pytest.CaptureFixture[str]) -> None:
    sandbox = ProcessSandbox("cpu", preload=guard.library())
    guest = sandbox.start()
    answer = load(guest, "import subprocess\nsubprocess.run(['/bin/true'], check=True)")
    guest.kill()
    sandbox.close()
    assert answer["ok"], answer
    assert "preload" not in guest.log + capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "guard.switch('after', guard.NAN)\nx = torch.ones(1024)\ny = torch.empty(1024)\nlib.scale(x, y, 0, 1024)\n"
        "guard.check()\nassert float(y.sum()) == 2048\nassert guard.counts().guarded >= 2",
        "guard.switch('before', guard.HUGE)\nx = torch.ones(7, 33)\nlib.scale(x, x, 0, 231)\ndel x\nguard.check()",
        "guard.switch('after', guard.NAN)\nx = torch.empty(100)\nassert lib.sum(x, 0, 100) != lib.sum(x, 0, 100)\n"
        "guard.switch('after', guard.HUGE)\nassert 1.1e30 < float(torch.empty(100)[5]) < 1.3e30",
        "guard.switch('after', guard.NAN)\nx = torch.ones(99)\nassert lib.sum(x, 0, 100) != lib.sum(x, 0, 100)",
        TRITON + "double[(4,)](x, y, 1000, BLOCK=256, MASKED=True)\nguard.check()\nassert float(y.sum()) == 2000",
    ],
    ids=["clean", "clean before", "uninitialised", "read of the filling", "triton"],
)
def test_kernels_that_stay_inside_pass_and_poison_shows(guest: ProcessGuest, program: str) -> None:
    answer = load(guest, program if program.startswith(TRITON) else KERNELS + program)
    assert answer["ok"], answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "ended_by", "told"),
    [
        ("y = torch.empty(1024)\nlib.scale(X, y, 0, 1025)", signal.SIGSEGV, "1 bytes past the end"),
        ("lib.sum(X[:2000], 0, 2001)", signal.SIGSEGV, "1 bytes past the end of a block of 8000"),
        ("lib.sum(X, -1, 1000)", signal.SIGSEGV, "4 bytes before the start of a block of 8000"),
        ("place = X.data_ptr()\ndel X\nlib.sum(place, 0, 1)", signal.SIGSEGV, "0 bytes into a block of 8000"),
        ("y = torch.empty(999)\nlib.scale(X, y, 0, 1000)\ndel y", signal.SIGABRT, "4 bytes were written"),
        ("y = torch.empty(7)\nlib.scale(X, y, 0, 8)\nguard.check()", signal.SIGABRT, "4 bytes were written"),
    ],
    ids=["write past", "read past", "read before", "use after free", "write into filling", "same, while alive"],
)  # fmt: skip
def test_a_kernel_with_a_memory_error_ends_its_guest(
    guest: ProcessGuest, program: str, ended_by: int, told: str
) -> None:
    side = "before" if "before" in told else "after"
    with pytest.raises(PeerClosed):
        load(guest, f"{KERNELS}\nguard.switch({side!r}, guard.NAN)\nX = torch.ones(2000)\n{program}")
    assert guest.exit_status == -ended_by
    guest.kill()  # its log is complete
    assert told in guest.log


@pytest.mark.slow
def test_an_interpreted_triton_kernel_without_its_mask_ends_its_guest(guest: ProcessGuest) -> None:
    with pytest.raises(PeerClosed):
        load(
            guest,
            TRITON + "x = torch.ones(1024)\ny = torch.empty(1024)\ndouble[(5,)](x, y, 1024, BLOCK=256, MASKED=False)",
        )
    assert guest.exit_status == -signal.SIGSEGV
