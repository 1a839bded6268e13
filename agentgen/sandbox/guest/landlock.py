"""Where a guest may write: Landlock (landlock(7)), an access control that a process puts on itself, root or not.

Reading and executing stay as they are. From ABI 4 on the kernel also refuses it TCP, from ABI 6 on to signal processes
that are not confined with it and to connect to their abstract UNIX sockets; they can still signal it.

Not covered: chmod, chown, utime and extended attributes, flock, ioctls; truncate(2) by path before ABI 3; UDP; UNIX
sockets by path; descriptors that were open before; memfds and pipes; threads that run already.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""On every machine."""
_VERSION = 1
"""LANDLOCK_CREATE_RULESET_VERSION."""
_PATH_BENEATH = 1

_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_REMOVE = 1 << 4 | 1 << 5
"""REMOVE_DIR and REMOVE_FILE."""
_MAKE = 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
"""MAKE_CHAR, DIR, REG, SOCK, FIFO, BLOCK and SYM."""
_TCP = 1 | 2
"""BIND_TCP and CONNECT_TCP."""
_SCOPED = 1 | 2
"""Abstract UNIX sockets, signals."""


def write_only_below(folders: Iterable[str]) -> int:
    """Lets the calling thread, and whatever it starts from now on, write nowhere but there, for good.

    The caller has set no_new_privs (PR_SET_NO_NEW_PRIVS) and has no second thread. It can mount nothing afterwards.

    Args:
        folders: Existing folders, with all that will be in them, or files, as /dev/null; links are followed now.

    Returns:
        The kernel's ABI. Before 2 nothing can be moved from one folder to another; before 3 see above.

    Raises:
        OSError: no Landlock here, it is refused, or one of the folders is not there.
    """
    abi = _call("Landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    handled = _writes(abi)
    attributes = struct.pack("=QQQ", handled, _TCP if abi >= 4 else 0, _SCOPED if abi >= 6 else 0)
    size = ctypes.c_size_t(len(attributes))  # older kernels know less of it and take the rest when it is 0
    ruleset = _call("a Landlock ruleset", _CREATE_RULESET, attributes, size, 0)
    try:
        for folder in folders:
            _allow(ruleset, folder, handled)
        _call("Landlock", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def _writes(abi: int) -> int:
    """Returns the kinds of writing that the kernel tells apart."""
    return _WRITE_FILE | _REMOVE | _MAKE | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)


def _allow(ruleset: int, path: str, accesses: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            accesses &= _WRITE_FILE | _TRUNCATE  # the kernel takes no others for a file
        beneath = struct.pack("=Qi", accesses, descriptor)
        _call(f"a Landlock rule for {path}", _ADD_RULE, ruleset, _PATH_BENEATH, beneath, 0)
    finally:
        os.close(descriptor)


def _call(what: str, number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what} is refused here")
    return result
