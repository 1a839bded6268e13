"""What the kernel tells of processes: who descends from whom, who is still there."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import pytest

from agentgen.errors import SandboxUnavailable
from agentgen.records.run import Isolation
from agentgen.sandbox.forked import ProcessGuest
from agentgen.sandbox.process import ProcessSandbox

GONE_S = 10.0
DOCKER = pytest.param(Isolation.DOCKER, marks=[pytest.mark.docker, pytest.mark.slow])
WALLED = [Isolation.JAIL, DOCKER]
KINDS = [*WALLED, Isolation.NONE]


def opened(kind: Isolation) -> ProcessSandbox:
    """Returns a sandbox of a kind, or skips where this machine has none."""
    if kind is Isolation.DOCKER:
        require_engine()
    one = ProcessSandbox("cpu", isolation=kind)
    if kind is Isolation.JAIL and one.isolation.startswith("none"):
        one.close()
        pytest.skip(one.isolation)
    return one


def require_engine() -> None:
    """Skips where Docker's engine does not answer."""
    from agentgen.sandbox import container

    try:
        container.engine()
    except SandboxUnavailable as error:
        pytest.skip(f"no engine: {error}")


def descendants(pid: int) -> set[int]:
    """Returns all living processes below `pid`."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = _state_and_parent(int(folder.name))
            if state not in "ZX":
                parents[int(folder.name)] = parent
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    """Whether `pid` runs or could run; a zombie does not."""
    try:
        return _state_and_parent(pid)[0] not in "ZX"
    except OSError:
        return False


def gone(pids: Iterable[int]) -> bool:
    """Whether all of `pids` end within ten seconds."""
    waiting = list(pids)
    return eventually(lambda: not any(map(alive, waiting)))


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether `condition` comes true within ten seconds."""
    deadline = time.monotonic() + GONE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def parent_of(pid: int) -> int:
    """Returns its parent, as this process counts."""
    return _state_and_parent(pid)[1]


def family_of(guest: ProcessGuest) -> set[int]:
    """Returns all processes that a guest has started and that live: below itself, and below whoever adopts them."""
    first = guest._first  # pyright: ignore[reportPrivateUsage]
    keeper = parent_of(guest.pid) if first == guest.pid else first
    return descendants(guest.pid) | descendants(keeper) - {guest.pid}


def known_as(inner: int, guest: ProcessGuest) -> int:
    """Returns the process of a guest that calls itself `inner`, in whatever namespace.

    Raises:
        StopIteration: there is none.
    """
    return next(pid for pid in family_of(guest) if _innermost(pid) == inner)


def firsts(root: int) -> set[int]:
    """Returns the processes below `root` that are process 1 of a namespace."""
    return {pid for pid in descendants(root) if _innermost(pid) == 1}


def _innermost(pid: int) -> int:
    """Returns what a process calls itself; 0 if it has ended since it was listed."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])


def home_of(pid: int) -> Path:
    """Returns $HOME of a process, as it was started."""
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(Path(v.removeprefix("HOME=")) for v in variables if v.startswith("HOME="))


def _state_and_parent(pid: int) -> tuple[str, int]:
    # The name in parentheses may hold anything, also spaces and parentheses.
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


@contextlib.contextmanager
def lingering(seconds: int) -> Generator[socket.socket]:
    """Yields a TCP socket that holds whoever closes it last for `seconds`: data is under way that nobody reads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
        reader, _ = server.accept()
        with reader, sock:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    sock.send(bytes(1 << 16))
            sock.setblocking(True)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
            yield sock
            reader.close()  # which ends the wait of whoever holds it still
