"""What a jailed guest sees of the file system: the system's programs and libraries, Python's and torch's, a few
devices, and its own scratch folder. Everything but that folder is read-only; all else is not there: homes, the store,
problems, other candidates.

Source: mount(2), pivot_root(2), mount_namespaces(7). Not covered: files that anybody may read below /usr and /sys.
"""

from __future__ import annotations

import ctypes
import glob
import os
import pwd
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from agentgen.sandbox.maps import executables

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys")
_SETTINGS = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
_STORES = ("/nix/store", "/gnu/store", "/run/opengl-driver")
_PROGRAMS = ("g++", "gcc", "cc", "ninja", "nvcc")
_FOLDERS = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH")
"""Of the environment: where a machine may keep libraries and compilers besides."""
_PRIVATE_MEMORY = "size=1g,mode=1777"

_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_NOATIME, _NODIRATIME, _RELATIME = 1024, 2048, 1 << 21
_ST_KEPT, _ST_RELATIME = 2 | 4 | 8 | _NOATIME | _NODIRATIME, 4096
"""Flags of statvfs(3) that mount(2) calls the same, and the one that it does not."""
_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_READ_ONLY = struct.pack("=QQQQ", 1, 0, 0, 0)
"""struct mount_attr: MOUNT_ATTR_RDONLY is to be set."""
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def readable() -> tuple[str, ...]:
    """Returns what this process's Python, its libraries and the compilers need, by path: ask when all is imported."""
    needed = [*_SYSTEM, *_SETTINGS, *_STORES, sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable]
    # Where packages were installed to, as a whole; of a source tree, which may hold problems and runs, ours alone.
    needed += [path for path in sys.path if os.path.isabs(path) and glob.glob(f"{glob.escape(path)}/*.dist-info")]
    needed.append(str(Path(__file__).parents[2]))
    besides = [path for name in _FOLDERS for path in os.environ.get(name, "").split(":")]
    besides += [os.path.dirname(one.name) for one in executables(os.getpid())]
    besides += [str(Path(program).resolve().parents[1]) for name in _PROGRAMS if (program := shutil.which(name))]
    # Not a folder that holds more than it is named for, nor what this process has built for itself.
    own = f"{os.path.realpath(tempfile.gettempdir())}/"
    closed = [os.path.realpath(path) for path in (_home(), os.getcwd(), tempfile.gettempdir())]
    there = {path for one in needed for path in _hops(one)}
    there |= {
        path
        for one in besides
        for path in _hops(one)
        if not path.startswith(own)
        and not any(f"{other}/".startswith(f"{os.path.realpath(path)}/") for other in closed)
    }
    return tuple(path for path in sorted(there) if not any(path.startswith(f"{other}/") for other in there))


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/root"


def _hops(path: str) -> list[str]:
    """Returns a path and all that it leads to, link by link, as far as it is there."""
    hops: list[str] = []
    path = path.rstrip("/")
    while path.startswith("/") and path not in hops and os.path.lexists(path):
        hops.append(path)
        if os.path.islink(path):
            path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    return [*hops, os.path.realpath(path)] if hops and os.path.exists(path) else hops


def change_to(paths: Iterable[str], root: str, scratch_of: Callable[[], str]) -> None:
    """Makes `paths`, read-only, and a scratch folder all that this process and its children see, in a mount namespace
    of their own; needs the right to mount there. /proc is that of their process namespace.

    Args:
        paths: As `readable` names them.
        root: The folder that holds all scratch folders. The view is built on it, for pivot_root wants a mount: what is
            mounted here nobody else sees.
        scratch_of: Says which of them is to be seen; called when all else is built.

    Raises:
        OSError: the kernel refuses a step; says which.
    """
    _mount(None, "/", None, _REC | _PRIVATE)
    folders = os.open(root, os.O_PATH | os.O_DIRECTORY)
    shown = [(path, os.open(path, os.O_PATH)) for path in paths if not os.path.islink(path)]
    shown += [(path, os.open(path, os.O_PATH)) for path in devices()]
    links = {path: os.readlink(path) for path in paths if os.path.islink(path)}
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "mode=755")
    (Path(root) / "tmp").mkdir()
    _mount("tmpfs", f"{root}/tmp", "tmpfs", _NOSUID | _NODEV, _PRIVATE_MEMORY)
    for path, target in links.items():
        _place(root, path).symlink_to(target)
    for path, descriptor in shown:
        _bind(descriptor, root, path, writable=path.startswith("/dev/"))
    _fill_dev(root)
    (Path(root) / "proc").mkdir()
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV | 8)
    scratch = scratch_of()
    kept = os.open(os.path.basename(scratch), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folders)
    _bind(kept, root, scratch, writable=True)
    os.close(folders)
    _pivot(root)
    _mount(None, "/", None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)


def devices() -> list[str]:
    """Returns the devices that a guest may use, by path."""
    gpus = [path for pattern in ("nvidia*", "nvhost*", "nvmap", "dxg") for path in glob.glob(f"/dev/{pattern}")]
    return [path for path in (*(f"/dev/{name}" for name in _DEVICES), *gpus) if os.path.exists(path)]


def _place(root: str, path: str) -> Path:
    place = Path(root + path)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _bind(descriptor: int, root: str, path: str, *, writable: bool) -> None:
    source = f"/proc/self/fd/{descriptor}"
    place = _place(root, path)
    if os.path.isdir(source):
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    _mount(source, str(place), None, _BIND | _REC)
    os.close(descriptor)
    if writable:
        return
    # With all that is mounted below it, such as /sys/fs/cgroup; before Linux 5.12 only itself can be.
    if _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, str(place).encode(), _AT_RECURSIVE, _READ_ONLY, len(_READ_ONLY)) != 0:
        now = os.statvfs(place).f_flag
        kept = now & _ST_KEPT | (_RELATIME if now & _ST_RELATIME else 0)
        _mount(None, str(place), None, _REMOUNT | _BIND | _RDONLY | kept)


def _fill_dev(root: str) -> None:
    for name, target in _LINKS.items():
        Path(root, "dev", name).symlink_to(target)
    shared = Path(root, "dev", "shm")
    shared.mkdir()
    _mount("tmpfs", str(shared), "tmpfs", _NOSUID | _NODEV, _PRIVATE_MEMORY)


def _pivot(root: str) -> None:
    """Makes `root` the root, and lets go of the old one, which lies on top of it until then (pivot_root(2), notes)."""
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _DETACH), "umount of the old root")
    os.chdir("/")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    arguments = (source and source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags))
    _check(_libc.mount(*arguments, data.encode() or None), f"mount {target}")


def _check(answer: int, what: str) -> None:
    if answer < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
