"""The jail of a guest: namespaces of its own (user, process, mount, network, ipc, uts), nobody's rights, no
capabilities, a view of the file system that holds little (`view`), Landlock and seccomp below it.

Process 1 of the namespaces builds the view and waits (`jailer`); the guest is forked by the zygote and enters. It is
not process 1 itself, because the kernel spares that one: abort() there ends in SIGSEGV.
Source: namespaces(7), user_namespaces(7), setns(2), capabilities(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator

from agentgen.errors import ProtocolError
from agentgen.sandbox.cgroup import PROCESSES
from agentgen.sandbox.guest import view
from agentgen.sandbox.guest.landlock import write_only_below
from agentgen.sandbox.guest.seccomp import refuse_system_calls
from agentgen.sandbox.wire import Channel

NOBODY = 65534
BUILD_S = 10.0
"""For one step of building it, which takes some milliseconds."""

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_V3, _LAST_CAPABILITY = 0x20080522, 63
ENTERED = ("mnt", "net", "ipc", "uts", "user")
"""Namespaces, as /proc/<pid>/ns calls them, that a guest enters once they are built, in this order: the last takes from
it the rights that the others want."""

_libc = ctypes.CDLL(None, use_errno=True)


def separate() -> bool:
    """Leaves this process's namespaces, so that what it forks next is process 1 of new ones. Returns whether it could
    as root; else it is in a user namespace of its own.

    Raises:
        OSError: the kernel refuses.
    """
    apart = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
    if os.geteuid() == 0 and _libc.unshare(apart) == 0:
        return True
    if os.geteuid() == 0:
        _become_nobody()  # root without CAP_SYS_ADMIN, as in many a container
    # Any other user keeps its id: as nobody it could not read a Python below a home that is closed.
    ids = os.geteuid(), os.getegid()
    _check(_libc.unshare(apart | _NEWUSER), "unshare")
    _map(*ids)
    return False


def told_once(line: socket.socket) -> str:
    """Returns what comes first from a socket; empty when its other end is closed.

    Raises:
        OSError: that takes too long.
    """
    line.settimeout(BUILD_S)
    return line.recv(4096).decode(errors="replace")


def told(descriptor: int) -> str:
    """Returns what is written to a pipe until its other end is closed.

    Raises:
        OSError: that takes too long: a file system may hang.
    """
    deadline, said = time.monotonic() + BUILD_S, b""
    while True:
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise OSError(f"it was not built within {BUILD_S:.0f} s")
        if not (more := os.read(descriptor, 4096)):
            return said.decode(errors="replace")
        said += more


def enter(paths: Iterable[str], root: str, scratch_of: Callable[[], str]) -> None:
    """Moves process 1 of new namespaces into the view (`view.change_to`), and away from root.

    Raises:
        OSError: the kernel refuses a step; says which.
    """
    is_root = os.geteuid() == 0
    view.change_to(paths, root, scratch_of)
    if is_root:
        _become_nobody()
        _check(_libc.unshare(_NEWUSER), "unshare user")
        _map(NOBODY, NOBODY)


def confine(scratch: str) -> str:
    """Gives up whatever may be given up: capabilities, gaining any, writing elsewhere, system calls. Returns what this
    kernel has no means for; empty where it has all.

    Raises:
        OSError: the kernel refuses a step; says which.
    """
    for number in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)  # EINVAL beyond the last that this kernel knows
    header, none = struct.pack("=Ii", _CAPABILITY_V3, 0), bytes(24)
    _check(_libc.capset(header, none), "capset")
    _check(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = PROCESSES if hard == resource.RLIM_INFINITY else min(PROCESSES, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    missing = ""
    try:
        write_only_below([scratch, "/tmp", "/dev", "/proc/self"])
    except OSError as error:  # the view is read-only all the same
        missing = f"Landlock: {error}"
    refuse_system_calls()
    return missing


def withdraw() -> None:
    """Keeps the guest, which has the same rights, from reaching into this process, which is process 1, and from ending
    it by a signal that Python handles."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, the time of who ends would be in nobody's account
    _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def wait_for_all() -> None:
    """Waits for whatever is left behind in the namespace whose process 1 this is. Never returns."""
    while True:
        signal.sigwait([signal.SIGCHLD])
        for _ in ended():
            pass


def ended() -> Iterator[tuple[int, int]]:
    """Yields children that have ended, with their status."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, status


def way_back() -> int | None:
    """Returns a descriptor of this process's own process namespace, if it may have its children born in another one and
    then in this one again: that wants CAP_SYS_ADMIN where this one was made."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    if _libc.setns(own, _NEWPID) == 0:
        return own
    os.close(own)
    return None


def be_born_into(process: int, user: int | None = None) -> None:
    """Has the children of this process be born in that process namespace; first enters a user namespace, if given, in
    which that is its right.

    Raises:
        OSError: the kernel refuses.
    """
    if user is not None:
        if os.geteuid() == 0:
            _become_nobody()  # as who made it
        _check(_libc.setns(user, _NEWUSER), "setns user")
    _check(_libc.setns(process, _NEWPID), "setns pid")


def join(line: Channel, *, by_root: bool) -> None:
    """Enters the namespaces whose process 1 is at the other end of `line`, as soon as they are built.

    Raises:
        OSError: they could not be built, or the kernel refuses a step; says which.
    """
    try:
        message, namespaces = line.receive(BUILD_S)
    except (ProtocolError, TimeoutError) as error:
        raise OSError(f"its process 1 says nothing: {error}") from error
    if "refused" in message:
        raise OSError(message["refused"])
    *others, user = namespaces
    for name, namespace in zip(ENTERED, others, strict=False):
        _check(_libc.setns(namespace, 0), f"setns {name}")
    if by_root:
        _become_nobody()
        _check(_libc.setns(user, _NEWUSER), "setns user")
    for namespace in namespaces:
        os.close(namespace)


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    _check(_libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")  # else its /proc/self/uid_map is root's


def _map(uid: int, gid: int) -> None:
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, content.encode())
        os.close(descriptor)


def _check(answer: int, what: str) -> int:
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return answer
