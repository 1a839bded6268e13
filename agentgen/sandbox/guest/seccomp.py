"""System calls that a guest has no business with, refused by the kernel: a seccomp filter (seccomp(2), bpf(4)).

Refused with EPERM: sockets other than AF_UNIX, reaching into other processes, mounts, namespaces, keys, BPF, perf
events, io_uring, kernel modules, swap, the clock, the host's name. clone3 does not exist (ENOSYS): its flags lie in
memory, where no filter sees them, and glibc goes on to clone, whose flags are looked at. Numbers: asm/unistd.h.

Not covered: what is reached through files (/proc/<pid>/mem, devices and their ioctls), AF_UNIX sockets by path or by
name, socketpair, descriptors that were open before or are passed in, signals, adjtimex, threads that run already.
Speculative store bypass stays as it was: kernels before 5.16 would mitigate it in whoever has a filter, and a guest
would be slower than what it races.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct

_SECCOMP = (317, 277)
_SET_MODE_FILTER, _SPEC_ALLOW = 1, 4
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column in the tables below, and AUDIT_ARCH_*, as platform.machine() names them."""
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
}
_REFUSED_ON_X86 = {"iopl": 172, "ioperm": 173}
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)
_FLAGS = 0x7E02_8000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; clone cannot do NEWTIME. And CLONE_PARENT, which no
C library uses: a process beside the guest is neither stopped with it nor counted among its children."""
_X32 = 0x4000_0000
_X32_ONLY = 512, 547
"""Numbers that kernels before 5.4 take for x32's also without its bit (seccomp(2))."""

_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
"""Places in struct seccomp_data; of the argument the low word, which is all that socket and clone look at."""
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000


def refuse_system_calls() -> None:
    """Refuses them to the calling thread, and to every thread and process that it starts from now on, for good.

    The caller has set no_new_privs (PR_SET_NO_NEW_PRIVS), has done its own mounts and has no second thread.

    Raises:
        OSError: an unknown machine, or the kernel does not take the filter.
    """
    machine = platform.machine()
    program = _program(machine)
    instructions = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions)))
    number, flags = _SECCOMP[_MACHINES[machine][0]], ctypes.c_ulong(_SPEC_ALLOW)
    if ctypes.CDLL(None, use_errno=True).syscall(number, _SET_MODE_FILTER, flags, header) != 0:
        raise OSError(ctypes.get_errno(), "a seccomp filter is refused here")


def _program(machine: str) -> bytes:
    """Returns the filter: rules that either return or fall through to the next one."""
    if machine not in _MACHINES:
        raise OSError(f"the numbers of system calls on {machine} are not known here")
    column, arch = _MACHINES[machine]
    refused = [numbers[column] for numbers in _REFUSED.values()]
    rules = [_load(_ARCH), _jump(_EQUAL, arch, 1, 0), _fail(errno.EPERM), _load(_NUMBER)]
    if machine == "x86_64":
        refused += _REFUSED_ON_X86.values()
        rules += [_jump(_AT_LEAST, _X32, 0, 1), _fail(errno.EPERM)]
        first, last = _X32_ONLY
        rules += [_jump(_AT_LEAST, first, 0, 2), _jump(_GREATER, last, 1, 0), _fail(errno.EPERM)]
    for number in refused:
        rules += [_jump(_EQUAL, number, 0, 1), _fail(errno.EPERM)]
    rules += [_jump(_EQUAL, _CLONE3[column], 0, 1), _fail(errno.ENOSYS)]
    rules += _by_argument(_SOCKET[column], _jump(_EQUAL, socket.AF_UNIX, 1, 0))
    rules += _by_argument(_CLONE[column], _jump(_ANY_BIT, _FLAGS, 0, 1))
    return b"".join([*rules, _allow()])


def _by_argument(number: int, jump: bytes) -> list[bytes]:
    """Decides one system call: `jump` compares the first argument and goes 0 ahead to refuse, 1 to allow."""
    return [_jump(_EQUAL, number, 0, 4), _load(_FIRST_ARGUMENT), jump, _fail(errno.EPERM), _allow()]


def _load(place: int) -> bytes:
    return _instruction(_LOAD, place)


def _jump(how: int, value: int, if_so: int, if_not: int) -> bytes:
    """Compares what was loaded and skips that many instructions."""
    return _instruction(how, value, if_so, if_not)


def _fail(error: int) -> bytes:
    return _instruction(_RETURN, _ERRNO | error)


def _allow() -> bytes:
    return _instruction(_RETURN, _ALLOW)


def _instruction(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    """Returns a struct sock_filter."""
    return struct.pack("=HBBI", code, if_so, if_not, value)
