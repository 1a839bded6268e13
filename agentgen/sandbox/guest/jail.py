"""The jail of a guest: namespaces of its own (user, process, mount, network, ipc, uts), nobody's rights, no
capabilities, a view of the file system that holds little (`view`), Landlock and seccomp below it.

    zygote -- fork, unshare, fork --> process 1 of its namespace: waits for the guest, then all in there ends
                                          -- fork --> guest

The guest is not process 1 itself, because the kernel spares that one: abort() there ends in SIGSEGV.
Source: namespaces(7), user_namespaces(7), capabilities(7).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Callable

from agentgen.sandbox.guest import limits, view
from agentgen.sandbox.guest.landlock import write_only_below
from agentgen.sandbox.guest.seccomp import refuse_system_calls

NOBODY = 65534
PROCESSES = 4096
"""Threads and processes of one guest: OpenMP on two hundred cores, and a compiler's."""

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_SET_DUMPABLE, _CAPBSET_DROP, _SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_V3, _LAST_CAPABILITY = 0x20080522, 63
_STATUS = struct.Struct("=i")

_libc = ctypes.CDLL(None, use_errno=True)


def found(be_first: Callable[[], None]) -> int:
    """Forks process 1 of new namespaces, and returns its id. There `be_first` runs, and must not return.

    Raises:
        OSError: the kernel refuses.
    """
    said, tell = os.pipe()
    go, gone = os.pipe()
    middle = os.fork()
    if middle == 0:
        _between(be_first, tell, (go, gone))
    os.close(tell)
    os.close(go)
    with open(said, "rb") as file:
        answer = file.read().decode(errors="replace")
    os.waitpid(middle, 0)  # from now on process 1 is our child: this process adopts orphans
    os.write(gone, b"!") if answer.isdigit() else None
    os.close(gone)
    if not answer.isdigit():
        raise OSError(answer or "it ended before it could say why")
    return int(answer)


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
                be_first()
            os._exit(1)
        os.write(tell, str(first).encode())
    except OSError as error:
        os.write(tell, str(error).encode())
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
        write_only_below([scratch, "/dev", "/proc/self"])
    except OSError as error:  # the view is read-only all the same
        missing = f"Landlock: {error}"
    refuse_system_calls()
    return missing


def run(scratch: str, become_guest: Callable[[], None], report: int) -> None:
    """Forks the guest and waits until it has ended, as process 1 has to for whatever else ends there; writes its status
    to `report`, for `status_of`. Never returns."""
    guest = os.fork()
    if guest == 0:
        become_guest()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.closerange(0, report)
    os.closerange(report + 1, 4096)
    confine(scratch)
    while True:
        pid, status = os.wait()
        if pid == guest:
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
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(content)


def _check(answer: int, what: str) -> int:
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return answer
