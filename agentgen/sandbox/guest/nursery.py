"""How a zygote's guests come into being: as plain forks, or each in a jail, and what the zygote holds of each."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agentgen.sandbox.guest import jail, view
from agentgen.sandbox.guest.jailer import Founded, Jailer
from agentgen.sandbox.wire import Channel

NONE = "none: plain processes"

Adopted = Callable[[], bool]
"""Waits until a guest's parent is the zygote, with which it is to die; False: the zygote is gone."""


@dataclass(frozen=True)
class Born:
    """One guest."""

    guest: int
    """Its process id, as the judge's system counts."""
    awaited: int
    """Of the last that ends of it, and is our child too: process 1 of its namespace, or itself where it has none."""

    def kill(self) -> None:
        """Ends its process group, and its namespace."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.guest, signal.SIGKILL)
        if self.awaited != self.guest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.awaited, signal.SIGKILL)

    def wait(self) -> int:
        """Waits until it has ended, ends what is left of it, and returns its wait status."""
        _, status = os.waitpid(self.guest, 0)
        if self.awaited != self.guest:
            self.kill()
            os.waitpid(self.awaited, 0)
        return status


class Nursery:
    """Bears guests, in jails wherever the kernel allows it."""

    def __init__(self, trial: str | None, *, confined: bool = False) -> None:
        """Founds no jail yet: the caller, which adopts orphans, has torch to import first.

        Args:
            trial: An empty folder, to try the jail in; None: guests are to be plain processes.
            confined: They need no namespaces, because there are walls round all of them: they have no rights, write
                nowhere else, and lack system calls that nobody needs.
        """
        self._paths: tuple[str, ...] = ()
        self._trial = trial
        self._confined = confined and trial is not None
        self._jailer = Jailer() if trial is not None and not confined else None
        self._ahead: Founded | None = None
        self._way_back: int | None = None
        self.jail = NONE
        """What guests are kept in, and what of it the kernel refused."""

    def prepare(self) -> None:
        """Tries the jail once; guests are plain processes where it fails. To be called when all is imported."""
        if self._trial is None:
            return
        if self._jailer is None:
            self._plain(self._trial, lambda: os._exit(0)).wait()
            return
        self._paths = view.readable()
        try:
            self._way_back = jail.way_back()
            ended = self._jailed(self._jailer, self._trial, lambda: _inspect(str(self._trial)), ()).wait()
            lacking = Path(self._trial, _LACKING)
            why = lacking.read_text() if lacking.exists() else ended and f"a process ended with status {ended}"
            why = why and f"in a jail {why}"
        except OSError as error:
            why = f"the kernel refuses a jail: {error}"
        if why:
            self.jail = f"{NONE}, because {why}"
            self._jailer.end()
            self._jailer = None

    @property
    def staff(self) -> set[int]:
        """Our children that are no guests."""
        jailer = self._jailer and self._jailer.pid
        return {pid for pid in (jailer, self._ahead and self._ahead.first) if pid}

    def look_ahead(self, group: Iterable[Path]) -> None:
        """Founds the jail of the next guest, which is to be in that control group, while nobody waits."""
        if self._jailer and self._trial and self._ahead is None:
            with contextlib.suppress(OSError):  # who bears the next one will be told
                self._ahead = self._jailer.found(self._paths, os.path.dirname(self._trial), group)

    def lost(self, pid: int) -> None:
        """Takes note that a child of ours has ended which is no guest."""
        if self._ahead and self._ahead.first == pid:
            self._ahead.close()
            self._ahead = None
        if self._jailer and self._jailer.pid == pid:
            self._jailer.pid = None  # who bears the next one will be told

    def bear(self, scratch: str, become_guest: Callable[[], None], group: Iterable[Path]) -> Born:
        """Forks a guest, which leads its process group when this returns: one that does not exist yet cannot be stopped
        or killed. This process is in its control group, and so is the jail that was founded ahead.

        Raises:
            OSError: its jail cannot be built.
        """
        if self._jailer is None:
            return self._plain(scratch, become_guest)
        return self._jailed(self._jailer, scratch, become_guest, group)

    def _plain(self, scratch: str, become_guest: Callable[[], None]) -> Born:
        leads, tell = socket.socketpair()
        with leads, tell:
            pid = os.fork()
            if pid == 0:
                _lead(tell, lambda: jail.confine(scratch) if self._confined else "", become_guest)
            tell.close()
            try:
                missing = _missing(leads)
            except OSError:
                os.waitpid(pid, 0)
                raise
        if self._confined:
            self.jail = f"no capabilities, seccomp, {missing or 'Landlock'}"
        return Born(pid, pid)

    def _jailed(self, jailer: Jailer, scratch: str, become_guest: Callable[[], None], group: Iterable[Path]) -> Born:
        founded = self._ahead or jailer.found(self._paths, os.path.dirname(scratch), group)
        self._ahead = None
        guest = 0
        leads, tell = socket.socketpair()
        with leads, tell, contextlib.closing(founded):

            def lead(adopted: Adopted) -> None:
                _lead(tell, lambda: _enter(founded, scratch, adopted), become_guest)

            try:
                founded.claim(scratch)
                guest = self._fork(founded, lead)
                tell.close()
                missing = _missing(leads)
            except OSError:
                # Process 1 ends when we have waited for the guest, which we may not know: whoever waits for any child
                # of ours waits for both.
                for pid in (guest, founded.first) if guest else (founded.first,):
                    os.kill(pid, signal.SIGKILL)
                raise
        self.jail = f"namespaces, no capabilities, seccomp, {missing or 'Landlock'}"
        return Born(guest, founded.first)

    def _fork(self, founded: Founded, lead: Callable[[Adopted], None]) -> int:
        """Forks a child of this process that is in a process namespace of its own."""
        if self._way_back is None or not founded.by_root:
            return _by_a_middle(founded, lead)
        try:
            jail.be_born_into(founded.process)
            guest = os.fork()
            if guest == 0:
                lead(lambda: True)
        finally:
            jail.be_born_into(self._way_back)
        return guest


_LEADS = "+"
_LACKING = "lacking"


def _inspect(folder: str) -> None:
    """Does in a jail what candidates do there, and leaves word of what fails: none shall be blamed for it. Never
    returns."""
    why = ""
    try:
        if subprocess.run([sys.executable, "-c", "import ctypes, tempfile"], check=False).returncode:
            why = f"{sys.executable} does not start"
        for device in glob.glob("/dev/nvidia[0-9]*"):
            os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        why = str(error)
    if why:
        Path(folder, _LACKING).write_text(why)
    os._exit(0)


def _by_a_middle(founded: Founded, lead: Callable[[Adopted], None]) -> int:
    """Forks the guest from a child that enters the namespaces for good: who is not root where its own process namespace
    was made could not come back. A fork more, of 15 ms."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        middle = os.fork()
        if middle == 0:
            ours.close()  # else the guest would not see the zygote end
            _go_between(founded, theirs, lead)
        theirs.close()
        said = jail.told_once(ours)
        os.waitpid(middle, 0)  # from now on the guest is our child: this process adopts orphans
        if not said.isdigit():
            raise OSError(said or "it ended before it could say why")
        with contextlib.suppress(BrokenPipeError):  # it could not enter, and says so elsewhere
            ours.send(b"!")
        return int(said)


def _go_between(founded: Founded, line: socket.socket, lead: Callable[[Adopted], None]) -> None:
    try:
        jail.be_born_into(founded.process, None if founded.by_root else founded.user)
        guest = os.fork()
        if guest == 0:
            lead(lambda: bool(line.recv(1)))
        line.send(str(guest).encode())
    except BaseException as error:  # noqa: BLE001
        line.send(f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(0)


def _enter(founded: Founded, scratch: str, adopted: Adopted) -> str:
    """Takes this process, which is to be the guest, into its jail. Returns what that lacks."""
    jail.join(Channel(founded.line), by_root=founded.by_root)
    missing = jail.confine(scratch)
    if not adopted():
        raise OSError("the zygote is gone")
    return missing


def _lead(tell: socket.socket, enter: Callable[[], str], become_guest: Callable[[], None]) -> None:
    """Leads a process group, enters what keeps it, and becomes a guest. Never returns."""
    try:
        os.setsid()
        missing = enter()
        tell.send(f"{_LEADS}{missing and f'no {missing}'}".encode())
    except BaseException as error:  # noqa: BLE001  as nobody even an import may fail here
        with contextlib.suppress(OSError):  # nobody is there to hear it
            tell.send(f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    tell.close()
    become_guest()


def _missing(leads: socket.socket) -> str:
    """Waits until a guest leads its group. Returns what there is not of what keeps it.

    Raises:
        OSError: it ended before, and why.
    """
    said = jail.told(leads.fileno())
    if not said.startswith(_LEADS):
        raise OSError(said or "it ended before it could say why")
    return said.removeprefix(_LEADS)
