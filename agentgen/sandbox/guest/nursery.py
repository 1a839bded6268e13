"""How a zygote's guests come into being: as plain forks, or each in a jail, and what the zygote holds of each."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentgen.sandbox.guest import jail, view
from agentgen.sandbox.kin import children

NONE = "none: plain processes"


@dataclass(frozen=True)
class Born:
    """One guest."""

    guest: int
    """Its process id, as the judge's system counts."""
    awaited: int
    """Of the process that ends with it and is our child: itself, or process 1 of its namespace."""
    report: int | None = None
    """Where process 1 says how the guest ended."""

    def kill(self) -> None:
        """Ends its process group, and its namespace."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.guest, signal.SIGKILL)
        if self.awaited != self.guest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.awaited, signal.SIGKILL)

    def status(self, awaited: int) -> int:
        """Returns the guest's wait status, given that of the process we waited for."""
        if self.report is None:
            return awaited
        status = jail.status_of(self.report)
        os.close(self.report)
        return status


class Nursery:
    """Bears guests, in jails wherever the kernel allows it."""

    def __init__(self, trial: str | None, *, confined: bool = False) -> None:
        """Tries the jail once, in an empty folder; None: guests are to be plain processes.

        Those that are `confined` need no namespaces, because there are walls round all of them: they have no rights,
        write nowhere else, and lack system calls that nobody needs.
        """
        self._paths: tuple[str, ...] = ()
        self._confined = confined
        self.jail = NONE
        """What guests are kept in, and what of it the kernel refused."""
        if trial is None:
            return
        if confined:
            os.waitpid(self._plain(trial, lambda: os._exit(0)).awaited, 0)
            return
        self._paths = view.readable()
        try:
            born = self._jailed(trial, lambda: _inspect(trial))
            os.waitpid(born.awaited, 0)
            ended = born.status(0)
        except OSError as error:
            self.jail, self._paths = f"{NONE}, because the kernel refuses a jail: {error}", ()
            return
        lacking = Path(trial, _LACKING)
        if ended or lacking.exists():
            why = lacking.read_text() if lacking.exists() else f"a process ended with status {ended}"
            self.jail, self._paths = f"{NONE}, because in a jail {why}", ()

    def bear(self, scratch: str, become_guest: Callable[[], None]) -> Born:
        """Forks a guest, which leads its process group when this returns: one that does not exist yet cannot be stopped
        or killed.

        Raises:
            OSError: its jail cannot be built.
        """
        return self._jailed(scratch, become_guest) if self._paths else self._plain(scratch, become_guest)

    def _plain(self, scratch: str, become_guest: Callable[[], None]) -> Born:
        leads, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            _lead(scratch if self._confined else None, become_guest, tell)
        os.close(tell)
        said = jail.told(leads)
        os.close(leads)
        if not said.startswith(_LEADS):
            os.waitpid(pid, 0)
            raise OSError(said or "it ended before it could say why")
        if self._confined:
            self.jail = f"no capabilities, seccomp, {said.removeprefix(_LEADS) or 'Landlock'}"
        return Born(pid, pid)

    def _jailed(self, scratch: str, become_guest: Callable[[], None]) -> Born:
        leads, tell = os.pipe()
        report, status = os.pipe()

        def settle() -> None:
            os.close(leads)
            os.close(report)
            _settle(self._paths, scratch, become_guest, tell, status)

        first = 0
        try:
            try:
                first = jail.found(settle)
            finally:
                os.close(tell)
                os.close(status)
            said = jail.told(leads)
            if not said.startswith(_LEADS):
                raise OSError(said or "it ended before it could say why")
        except OSError:
            os.close(report)
            if first:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
                os.waitpid(first, 0)
            raise
        finally:
            os.close(leads)
        self.jail = "namespaces, no capabilities, seccomp, " + (said.removeprefix(_LEADS) or "Landlock")
        (guest,) = children(first) or (first,)
        return Born(guest, first, report)


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


def _settle(paths: tuple[str, ...], scratch: str, become_guest: Callable[[], None], tell: int, status: int) -> None:
    """Builds the jail round process 1, which this is, and the guest in it. Never returns."""
    try:
        jail.enter(paths, scratch)
        jail.run(scratch, lambda: _lead(scratch, become_guest, tell), status)
    except BaseException as error:  # noqa: BLE001  as nobody even an import may fail here
        os.write(tell, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(1)


def _lead(scratch: str | None, become_guest: Callable[[], None], tell: int) -> None:
    """Leads a process group, confined to `scratch`, and becomes a guest. Never returns."""
    try:
        os.setsid()
        missing = jail.confine(scratch) if scratch else ""
        os.write(tell, f"{_LEADS}{missing and f'no {missing}'}".encode())
    except BaseException as error:  # noqa: BLE001
        os.write(tell, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    os.close(tell)
    become_guest()
