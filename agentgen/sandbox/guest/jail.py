"""The jail of a guest: namespaces of its own (user, process, mount, network, ipc, uts), nobody's rights, no
capabilities, a view of the file system that holds little (`view`), Landlock and seccomp below it.

    zygote -- fork, unshare, fork --> process 1 of its namespace: waits for the guest, then all in there ends
                                          -- fork --> guest

The guest is not process 1 itself, because the kernel spares that one: abort() there ends in SIGSEGV.
Source: namespaces(7), user_namespaces(7), capabilities(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack

from agentgen.sandbox.guest import limits, view
from agentgen.sandbox.guest.landlock import write_only_below
from agentgen.sandbox.guest.seccomp import refuse_system_calls

NOBODY = 65534
PROCESSES = 4096
"""Threads and processes of one guest: OpenMP on two hundred cores, and a compiler's."""

BUILD_S = 10.0
"""For one step of building it, which takes some milliseconds."""

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_V3, _LAST_CAPABILITY = 0x20080522, 63
_STATUS = struct.Struct("=i")

_libc = ctypes.CDLL(None, use_errno=True)


def found(be_first: Callable[[], None]) -> int:
    """Forks process 1 of new namespaces, and returns its id. There `be_first` runs, and must not return.

    Raises:
        OSError: the kernel refuses, or it takes too long.
    """
    with ExitStack() as stack:
        said, tell = _pipe(stack)
        go, gone = _pipe(stack)
        middle = os.fork()
        if middle == 0:
            os.close(said)
            _between(be_first, tell, (go, gone))
        os.close(tell)
        try:
            answer = told(said)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(middle, signal.SIGKILL)  # it has nothing to do any more
            os.waitpid(middle, 0)  # from now on process 1 is our child: this process adopts orphans
        if not answer.isdigit():
            raise OSError(answer or "it ended before it could say why")
        with contextlib.suppress(BrokenPipeError):
            os.write(gone, b"!")
        return int(answer)


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


def _pipe(stack: ExitStack) -> tuple[int, int]:
    """Returns a pipe whose ends are closed with `stack`, as far as they still are open."""
    ends = os.pipe()
    for end in ends:
        stack.callback(_close, end)
    return ends


def _close(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.close(descriptor)


def _between(be_first: Callable[[], None], tell: int, go: tuple[int, int]) -> None:
    """Leaves the namespaces: what it forks then is in the new ones. A process namespace is entered by birth only, and
    clone(2) by hand leaves the locks of libraries' threads closed (seen: setresuid waited for them for good)."""
    try:
        apart = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
        if os.geteuid() != 0 or _libc.unshare(apart) != 0:
            if os.geteuid() == 0:
                _become_nobody()  # root without CAP_SYS_ADMIN, as in many a container
            # Any other user keeps its id: as nobody it could not read a Python below a home that is closed.
            ids = os.geteuid(), os.getegid()
            _check(_libc.unshare(apart | _NEWUSER), "unshare")
            _map(*ids)
        first = os.fork()
        if first == 0:
            os.close(tell)
            os.close(go[1])
            if os.read(go[0], 1):
                os.close(go[0])
                limits.die_with_parent()
                be_first()
            os._exit(1)
        os.write(tell, str(first).encode())
    except BaseException as error:  # noqa: BLE001  as nobody even an import may fail here
        os.write(tell, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(0)


def enter(paths: tuple[str, ...], scratch: str) -> None:
    """Moves process 1 of new namespaces into the view, and away from root.

    Raises:
        OSError: the kernel refuses a step; says which.
    """
    is_root = os.geteuid() == 0
    view.change_to(paths, scratch)
    if is_root:
        _become_nobody()
        _check(_libc.unshare(_NEWUSER), "unshare user")
        _map(NOBODY, NOBODY)
    limits.die_with_parent()  # the change of ids would have had the kernel forget it


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


def run(scratch: str, become_guest: Callable[[], None], report: int) -> None:
    """Forks the guest and waits until it has ended, as process 1 has to for whatever else ends there; writes its status
    to `report`, for `status_of`. Never returns."""
    guest = os.fork()
    if guest == 0:
        os.close(report)
        become_guest()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(0, report)
    os.closerange(report + 1, 4096)
    confine(scratch)
    # The guest has the same rights: it may neither reach into this process nor end it by a signal that Python handles.
    _check(_libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        pid, status = os.wait()
        if pid == guest:
            with contextlib.suppress(OSError):
                os.write(report, _STATUS.pack(status))
            os._exit(0)


def status_of(report: int) -> int:
    """Returns the wait status of a guest whose process 1 has ended: SIGKILL, if it could not say any more."""
    said = os.read(report, _STATUS.size)
    return _STATUS.unpack(said)[0] if len(said) == _STATUS.size else int(signal.SIGKILL)


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
