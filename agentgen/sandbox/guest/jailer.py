"""Founds jails for a zygote: a small process, forked before torch is imported, because a fork copies page tables. A
zygote with torch in it takes most of 15 ms for one, this process 1 ms; what it founds holds nothing of the zygote's.

    zygote                                      jailer
      | -- paths, group, a line to process 1 -----> | -- fork, enter the group, unshare, fork --> process 1: the view
      | <-- first, process and user namespace ----- |                             |
      | -- which scratch folder (the line) -------------------------------------> |
      | -- fork, into its process namespace --> guest <-- the other namespaces -- | and gives everything up

Process 1 waits for whatever is left behind in its namespace, until the zygote kills it: then all in there ends.
Source: pid_namespaces(7), setns(2).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentgen.errors import PeerClosed, ProtocolError
from agentgen.sandbox import cgroup
from agentgen.sandbox.guest import jail, limits
from agentgen.sandbox.wire import Channel, Message, pair

_DESCRIPTORS = 4096
"""As many as there can be here."""


@dataclass(frozen=True)
class Founded:
    """Namespaces that wait for their guest."""

    first: int
    """Process id of process 1 of them, which is our child."""
    by_root: bool
    """Whether root made them; else whoever enters becomes what it is in the user namespace first."""
    process: int
    user: int
    """Descriptors of namespaces."""
    line: socket.socket
    """To process 1, for `claim`, and then for the guest's `jail.join`."""

    def claim(self, scratch: str) -> None:
        """Says which scratch folder is to be seen there.

        Raises:
            OSError: process 1 is gone.
        """
        try:
            Channel(self.line).send({"scratch": scratch})
        except ProtocolError as error:
            raise OSError(f"its process 1 is gone: {error}") from error

    def close(self) -> None:
        """Lets go of the descriptors."""
        os.close(self.process)
        os.close(self.user)
        self.line.close()


class Jailer:
    """That process, as the zygote holds it."""

    def __init__(self) -> None:
        """Forks it; the caller adopts orphans (`limits.adopt_orphans`), for it is to be process 1's parent."""
        self._channel, theirs = pair()
        self.pid: int | None = os.fork()
        """None when it has ended."""
        if self.pid == 0:
            _serve(theirs)
        theirs.close()

    def found(self, paths: Iterable[str], root: str, group: Iterable[Path]) -> Founded:
        """Returns namespaces whose view is being built, by a process 1 that was born in that control group.

        Raises:
            OSError: the kernel refuses, or it takes too long.
        """
        line, theirs = socket.socketpair()
        try:
            with theirs:
                asked = {"paths": tuple(paths), "root": root, "group": [str(folder) for folder in group]}
                self._channel.send(asked, [theirs.fileno()])
            message, fds = self._channel.receive(jail.BUILD_S)
        except (ProtocolError, TimeoutError) as error:
            self.end()  # a late answer would be taken for that to the next question
            line.close()
            raise OSError(f"what founds jails does not answer: {error}") from error
        if "refused" in message:
            line.close()
            raise OSError(message["refused"])
        process, user = fds
        return Founded(message["first"], message["by_root"], process, user, line)

    def end(self) -> None:
        """Ends it."""
        pid, self.pid = self.pid, None
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _serve(ours: socket.socket) -> None:
    """Founds jails until the zygote ends. Never returns."""
    try:
        limits.die_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the zygote's handler removes the guests' folder
        # The judge's socket above all: a judge could not see its zygote end.
        os.closerange(3, ours.fileno())
        os.closerange(ours.fileno() + 1, _DESCRIPTORS)
        channel = Channel(ours)
        while True:
            message, (line,) = channel.receive()
            _found(channel, message, line)
            os.close(line)
    except PeerClosed:
        pass
    finally:
        os._exit(0)


def _found(channel: Channel, message: Message, line: int) -> None:
    go, gone = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(gone)
        _between(channel, message, line, go)
    os.close(go)
    os.waitpid(middle, 0)  # from now on process 1 is the zygote's child
    with contextlib.suppress(BrokenPipeError):
        os.write(gone, b"!")
    os.close(gone)


def _between(channel: Channel, message: Message, line: int, go: int) -> None:
    """Leaves the namespaces: what it forks then is in the new ones; a process namespace is entered by birth only. Here,
    where nobody waits, it is also moved to the control group in which process 1 is to be born."""
    try:
        cgroup.enter(map(Path, message["group"]))
        by_root = jail.separate()
        own = os.open("/proc/self/ns", os.O_RDONLY)  # process 1 takes this /proc away: they share the mounts
        first = os.fork()
        if first == 0:
            os.close(channel.fileno())
            _be_first(message, line, go)
        namespaces = [os.open(name, os.O_RDONLY, dir_fd=own) for name in ("pid_for_children", "user")]
        channel.send({"first": first, "by_root": by_root}, namespaces)
    except BaseException as error:  # noqa: BLE001  as nobody even an import may fail here
        channel.send({"refused": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _be_first(message: Message, line: int, go: int) -> None:
    """Builds the view, gives up all that may be given up, and only then lets the guest in. Never returns."""
    try:
        channel = Channel(socket.socket(fileno=line))
        try:
            scratch = _settle(channel, message, go)
            namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in jail.ENTERED]
            jail.confine(scratch)
            jail.withdraw()
        except PeerClosed:
            return
        except BaseException as error:  # noqa: BLE001
            channel.send({"refused": f"{type(error).__name__}: {error}"})
            signal.pause()  # until the zygote kills us: without process 1 its fork would fail, and nobody learn why
            return
        channel.send({}, namespaces)
        os.closerange(0, _DESCRIPTORS)
        jail.wait_for_all()
    finally:
        os._exit(1)


def _settle(channel: Channel, message: Message, go: int) -> str:
    """Builds the view and moves there. Returns the scratch folder in it, for which it may wait long."""
    scratch = ""

    def scratch_of() -> str:
        nonlocal scratch
        if not os.read(go, 1):
            raise PeerClosed("the jailer is gone")
        limits.die_with_parent()  # before, that would have been whoever forked us
        scratch = str(channel.receive()[0]["scratch"])
        return scratch

    jail.enter(message["paths"], message["root"], scratch_of)
    limits.die_with_parent()  # the change of ids had the kernel forget it
    return scratch
