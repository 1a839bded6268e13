"""The filter of system calls: real processes that put it on themselves and try, and its program run step by step."""

from __future__ import annotations

import errno
import json
import operator
import platform
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from agentgen.sandbox.guest import seccomp

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NEW_USER, NEW_PID, NEW_NET, THREAD = 0x10000000, 0x20000000, 0x40000000, 0x00010000 | 0x100 | 0x200 | 0x400 | 0x800
PRELUDE = """
import ctypes, errno, json, os, socket, subprocess, threading
from agentgen.sandbox.guest import seccomp
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
column = seccomp._MACHINES[os.uname().machine][0]
def call(number, *arguments):
    result = libc.syscall(number, *(ctypes.c_long(each) for each in arguments))
    return "fine" if result >= 0 else errno.errorcode[ctypes.get_errno()]
def open_socket(*kind):
    try:
        socket.socket(*kind).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "fine"
def harmless():
    names = ["ptrace", "process_vm_readv", "unshare", "perf_event_open"]
    return {name: call(seccomp._REFUSED[name][column], *[-1] * 6) for name in names}
found = {"before": harmless(), "udp before": open_socket(socket.AF_INET, socket.SOCK_DGRAM)}
assert libc.prctl(38, 1, 0, 0, 0) == 0
seccomp.refuse_system_calls()
"""
POSTLUDE = """
print(json.dumps(found))
"""
PROBE = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
allow = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000))
libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, struct.pack("@HP", 1, ctypes.addressof(allow)), 0, 0) != 0:
    print(os.strerror(ctypes.get_errno()))
"""


@pytest.fixture(scope="module", autouse=True)
def filters() -> None:
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        pytest.skip(f"no filter for {sys.platform} on {platform.machine()}")
    refused = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60).stdout.strip()
    if refused:
        pytest.skip(f"the kernel takes no filter at all here: {refused}")


def tried(body: str) -> dict[str, Any]:
    """What a process finds that has put the filter on itself."""
    command = [sys.executable, "-c", PRELUDE + body + POSTLUDE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_internet_and_kernel_sockets_are_refused_and_unix_sockets_are_not() -> None:
    found = tried("""
found["tcp"] = open_socket(socket.AF_INET, socket.SOCK_STREAM)
found["udp"] = open_socket(socket.AF_INET, socket.SOCK_DGRAM)
found["tcp6"] = open_socket(socket.AF_INET6, socket.SOCK_STREAM)
found["netlink"] = open_socket(socket.AF_NETLINK, socket.SOCK_RAW)
found["unix"] = open_socket(socket.AF_UNIX, socket.SOCK_STREAM)
one, other = socket.socketpair()
one.send(b"hello")
found["pair"] = other.recv(5).decode()
""")
    assert found["udp before"] == "fine"
    assert [found[kind] for kind in ("tcp", "udp", "tcp6", "netlink")] == ["EPERM"] * 4
    assert (found["unix"], found["pair"]) == ("fine", "hello")


def test_every_system_call_of_the_table_is_refused() -> None:
    found = tried("""
numbers = {name: both[column] for name, both in seccomp._REFUSED.items()}
if column == 0:
    numbers |= seccomp._REFUSED_ON_X86
found["after"] = {name: call(number, *[-1] * 6) for name, number in numbers.items()}
found["clone3"] = call(seccomp._CLONE3[column], -1, -1)
""")
    assert set(found["before"].values()) != {"EPERM"}  # a container refuses some of them by itself
    assert {"ptrace", "process_vm_readv", "unshare", "perf_event_open", "userfaultfd"} <= set(found["after"])
    assert set(found["after"].values()) == {"EPERM"}
    assert found["clone3"] == "ENOSYS"


def test_a_clone_into_a_namespace_or_beside_its_parent_is_refused() -> None:
    found = tried("""
import signal
def clone(flags):
    arguments = (ctypes.c_long(each) for each in (flags | signal.SIGCHLD, 0, 0, 0, 0))
    result = libc.syscall(seccomp._CLONE[column], *arguments)
    if result == 0:
        os._exit(0)
    if result < 0:
        return errno.errorcode[ctypes.get_errno()]
    return os.waitstatus_to_exitcode(os.waitpid(result, 0)[1])
found["user"], found["beside"], found["plain"] = clone(0x10000000), clone(0x8000), clone(0)
""")
    assert (found["user"], found["beside"], found["plain"]) == ("EPERM", "EPERM", 0)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 is of x86_64")
def test_x32_is_refused() -> None:
    found = tried("found['x32'], found['plain'] = call(0x40000000 | 39), call(39)")
    assert (found["x32"], found["plain"]) == ("EPERM", "fine")


def test_threads_forks_and_programs_still_work_and_are_filtered_too() -> None:
    found = tried("""
found["threads"] = []
gate = threading.Barrier(64)
def work():
    gate.wait(30)
    found["threads"].append(open_socket(socket.AF_INET))
threads = [threading.Thread(target=work) for _ in range(64)]
[each.start() for each in threads]
[each.join() for each in threads]
found["true"] = subprocess.run(["/bin/true"]).returncode
child = os.fork()
if child == 0:
    os._exit(7 if open_socket(socket.AF_INET) == "EPERM" else 1)
found["fork"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
program = "import socket\\ntry: socket.socket()\\nexcept PermissionError: print('refused')"
found["program"] = subprocess.run([os.sys.executable, "-c", program], capture_output=True, text=True).stdout
""")
    assert found["threads"] == ["EPERM"] * 64
    assert (found["true"], found["fork"], found["program"]) == (0, 7, "refused\n")


def test_an_unknown_machine_is_an_error() -> None:
    with pytest.raises(OSError, match="m68k"):
        program("m68k")


@pytest.mark.parametrize("machine", MACHINES)
def test_the_program_decides_alike_on_both_machines(machine: str) -> None:
    x86 = machine == "x86_64"
    sockets, clone, clone3, ptrace, read = (41, 56, 435, 101, 0) if x86 else (198, 220, 435, 117, 63)
    refused = ERRNO | errno.EPERM
    assert decision(machine, read) == ALLOW
    assert decision(machine, ptrace) == refused
    assert decision(machine, clone3) == ERRNO | errno.ENOSYS
    assert decision(machine, sockets, socket.AF_UNIX) == ALLOW
    assert decision(machine, sockets, socket.AF_INET) == refused
    assert decision(machine, clone, THREAD) == ALLOW
    assert {decision(machine, clone, flag | 17) for flag in (NEW_USER, NEW_PID, NEW_NET, 0x20000, 0x8000)} == {refused}
    assert decision(machine, read, arch=0x40000003) == refused  # of i386
    assert [decision(machine, number) for number in (511, 512, 521, 547, 548)] == [
        ALLOW,
        *[refused if x86 else ALLOW] * 3,
        ALLOW,
    ]


def program(machine: str) -> bytes:
    return seccomp._program(machine)  # pyright: ignore[reportPrivateUsage]


def decision(machine: str, number: int, argument: int = 0, arch: int | None = None) -> int:
    """Runs the program, as the kernel does."""
    code = list(struct.iter_unpack("=HBBI", program(machine)))
    data = struct.pack("=IIQQ", number, MACHINES[machine] if arch is None else arch, 0, argument)
    tests: dict[int, Callable[[int, int], int]] = {
        0x15: operator.eq,
        0x25: operator.gt,
        0x35: operator.ge,
        0x45: operator.and_,
    }
    at = loaded = 0
    while True:
        operation, if_so, if_not, value = code[at]
        at += 1
        if operation == 0x06:
            return value
        if operation == 0x20:
            (loaded,) = struct.unpack_from("=I", data, value)
        else:
            at += if_so if tests[operation](loaded, value) else if_not
