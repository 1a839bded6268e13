"""Turns on a device: whoever measures there waits until all who came before it have finished, in whatever process.

Two runs on one machine that judge on one device at once spoil each other's times. Each takes a turn for one evaluation
and gives it back, so that several runs advance side by side, one evaluation each.

The queue of a device is a folder of tickets: empty files with ordered names, each locked (flock) by the process that
wrote it. A new ticket gets the next number while the folder itself is locked. Its owner then waits for the lock of each
lower ticket, the nearest first: it sleeps in the kernel, next to none of the time that somebody else measures is taken
from him, and of several who wait only the next one wakes. The kernel drops the locks of a dead process, so that its
ticket is one of nobody: who meets it removes it.

In /tmp rather than under TMPDIR, which batch systems and tests set for each job: a queue that others do not see is
none. Costs 0.07 ms where nobody else is there (docs/decisions/020-turns-and-pool.md).

Not covered: other users, whose tickets would lie in a folder that anybody can fill; containers with a /tmp of their
own; a process that is suspended, which keeps its place; a thread that takes a second turn on the device of its first,
which waits for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agentgen.errors import MachineFailure
from agentgen.workers.devices import physical

_TICKET = re.compile(r"(\d+)-\d+-[0-9a-f]+")
"""Number, process, and what makes the name its own for ever: nobody removes a later ticket by an earlier one's name."""
_ATTEMPTS = 5
"""Of joining a queue whose folder is removed meanwhile, as systemd-tmpfiles does with what lay idle for ten days."""


def _nobody() -> None:
    """Is told nothing."""


@contextmanager
def turn(device: str, on_wait: Callable[[], None] = _nobody, place: Path | None = None) -> Generator[None]:
    """Holds a turn on a device of this machine, once all who asked before have had theirs.

    Args:
        device: `cpu` or `cuda:N`, as this process counts.
        on_wait: Called once if somebody else is there, before the wait.
        place: The folder of all queues. [default: one of this user, in /tmp]

    Raises:
        MachineFailure: the queue's folder cannot be used.
    """
    folder = (place or _own_place()) / physical(device).replace("/", "-")
    with _reported(folder):
        ticket = _join(folder)
    try:
        _await(ticket, on_wait)
        yield
    finally:
        ticket.give_back()


@dataclass(frozen=True, slots=True)
class _Ticket:
    """A place in a queue."""

    place: Path
    """The queue's folder."""
    folder: int
    """Its descriptor: a ticket stays in the folder it was written to."""
    name: str
    lock: int
    """Descriptor of the ticket's file, which is locked through it."""
    before: tuple[str, ...]
    """Tickets of those who came earlier, the nearest first; some of nobody may be among them."""

    def give_back(self) -> None:
        """Leaves the queue."""
        with contextlib.suppress(OSError):  # somebody has emptied the folder
            os.unlink(self.name, dir_fd=self.folder)
        # By name, not only by closing: a process forked meanwhile has a copy of the descriptor.
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        os.close(self.lock)
        os.close(self.folder)


def _own_place() -> Path:
    temporary = Path("/tmp") if os.access("/tmp", os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return temporary / f"agentgen.turns-{os.getuid()}"


def _join(folder: Path) -> _Ticket:
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(FileNotFoundError):
            return _joined(folder)
    return _joined(folder)


def _joined(folder: Path) -> _Ticket:
    """Returns a new ticket, the last of its queue."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = folder.parent.lstat()
    if not stat.S_ISDIR(owner.st_mode) or owner.st_uid != os.getuid():
        raise PermissionError(f"{folder.parent} is not a folder of this user's; remove it")
    folder.mkdir(mode=0o700, exist_ok=True)
    with contextlib.ExitStack() as undo:
        queue = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        undo.callback(os.close, queue)
        fcntl.flock(queue, fcntl.LOCK_EX)
        numbers = {int(found[1]): name for name in os.listdir(queue) if (found := _TICKET.fullmatch(name))}
        name = f"{max(numbers, default=0) + 1:06}-{os.getpid()}-{secrets.token_hex(4)}"
        lock = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600, dir_fd=queue)
        undo.callback(os.close, lock)
        # Before the folder is unlocked: a ticket that others can see and that is not locked is one of nobody.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(queue, fcntl.LOCK_UN)
        undo.pop_all()
    return _Ticket(folder, queue, name, lock, tuple(numbers[number] for number in sorted(numbers, reverse=True)))


def _await(ticket: _Ticket, on_wait: Callable[[], None]) -> None:
    """Waits until no earlier ticket is locked. Later ones have higher numbers, so that one look at each is enough."""
    waited = False
    for name in ticket.before:
        if _over(ticket, name, fcntl.LOCK_NB):
            continue
        if not waited:
            on_wait()
        waited = True
        _over(ticket, name, 0)


def _over(ticket: _Ticket, name: str, flags: int) -> bool:
    """Returns whether an earlier ticket is one of nobody by now; waits until it is, unless `flags` forbid that."""
    with _reported(ticket.place):
        try:
            lock = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=ticket.folder)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | flags)  # shared: of several who look at one, none is taken for its owner
            with contextlib.suppress(FileNotFoundError):  # its owner has not removed it: it is dead
                os.unlink(name, dir_fd=ticket.folder)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
    return True


@contextmanager
def _reported(place: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise MachineFailure(f"no turn can be waited for in {place}: {error.strerror or error}") from error
