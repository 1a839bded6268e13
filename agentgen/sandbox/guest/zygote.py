"""The zygote: a warm process that guests are forked from. A program of its own, started by exec, never forked from a
judge: `python -m agentgen.sandbox.guest.zygote --device cpu|cuda:N --folder FOLDER [--arch sm_90a] [--jail FOLDER]
--channel FD`, in a container with `--connect PATH` of a socket instead.

It imports torch and triton once (2-3 s on an H200; a fork takes 0.01 s) and never touches CUDA: a forked child of a
process that did cannot use it. It starts no threads and runs no OpenMP work, which do not survive a fork either.

    (itself, when warm)                                -> ready, jail: what its guests are kept in; groups, cgroup
    fork   scratch, limits + guest's socket, log pipe  -> forked: the guest's pid; awaited: of its process 1;
                                                          groups: its control groups; cgroup: what they limit
    (itself, when a guest has ended)                   -> exited: pid, status (negative: killed by that signal)

When its own socket closes, or the judge is killed, it kills every guest's process group, removes the folder that all
of them worked in, and ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Collection
from functools import partial

from agentgen.errors import PeerClosed
from agentgen.sandbox import cgroup, folders
from agentgen.sandbox.guest import limits, pages
from agentgen.sandbox.guest.jail import ended
from agentgen.sandbox.guest.nursery import Born, Nursery
from agentgen.sandbox.kin import children
from agentgen.sandbox.wire import Channel, Message

SETTLE_S = 0.05
"""A fresh guest gets ready first: that its zygote moves on takes 2 ms of a processor, and a wait of 5-25 ms."""


def main() -> None:
    """Warms up, then forks guests until the judge closes the socket."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int)
    parser.add_argument("--connect")
    parser.add_argument("--device", required=True)
    parser.add_argument("--folder", required=True, help="where all guests work; removed at the end")
    parser.add_argument("--arch")
    parser.add_argument("--jail", help="an empty folder to try the jail in; without it guests are plain processes")
    parser.add_argument("--memory", type=int, help="bytes that a guest's control group allows")
    parser.add_argument("--processes", type=int, default=cgroup.PROCESSES)
    arguments = parser.parse_args()
    limits.adopt_orphans()
    # The guarding allocator is in this process, and in whoever is forked. A program that starts in a jail, where the
    # library's file is not, would say so on the user's terminal.
    os.environ.pop("LD_PRELOAD", None)
    if arguments.connect:
        limits.keep_others_out()
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(arguments.connect)
    else:
        signal.signal(signal.SIGTERM, partial(_leave, arguments.folder))
        limits.die_with_parent(signal.SIGTERM)  # not SIGKILL: children of guests would outlive us
        sock = socket.socket(fileno=arguments.channel)
    channel = Channel(sock)
    # Before torch is there: it forks a process that shall stay small.
    nursery = Nursery(arguments.jail, confined=bool(arguments.connect))
    _warm_up(arguments.device, arguments.arch)
    nursery.prepare()
    groups = cgroup.Groups(arguments.memory, arguments.processes)
    Zygote(channel, arguments.device, arguments.arch, nursery, groups).run()
    _leave(arguments.folder)


def _leave(folder: str, *_: object) -> None:
    """Ends this process, and leaves nothing behind: a judge that was killed cannot clean up."""
    folders.remove(folder)
    os._exit(0)  # the interpreter's own end takes 0.7 s with torch in it, and whoever hung up waits for it


def _warm_up(device: str, arch: str | None) -> None:
    """Imports what every candidate needs, and has compilers do once what they would do in each guest."""
    # The modules are named here and not on top so that a broken torch is reported on the socket, not as a dead child.
    from agentgen.sandbox.guest import coverage, gate, interpreter, sampler, serve  # noqa: F401  # pyright: ignore

    coverage.warm_up()
    if os.environ.get("TRITON_INTERPRET") == "1":
        interpreter.install()
    if device == "cpu":
        sampler.warm_up()
    elif arch:
        # NVRTC initialises the driver in its process, and a process that did cannot fork guests (cuInit gives 3 there,
        # seen with NVRTC 13.0): a child compiles into the cache, this process only reads it.
        child = os.fork()
        if child == 0:
            gate.compiled(arch)
            os._exit(0)
        os.waitpid(child, 0)
        gate.compiled(arch)
        from agentgen.sandbox.guest import compiler  # a CPU has no use for it

        compiler.warm_up(arch)
    pages.gather()


class Zygote:
    """Forks guests and reports their ends."""

    def __init__(
        self, channel: Channel, device: str, arch: str | None, nursery: Nursery, groups: cgroup.Groups
    ) -> None:
        self._channel = channel
        self._device = device
        self._arch = arch
        self._born: dict[int, Born] = {}
        """By process id: of the guest, and of process 1 of its namespace."""
        self._statuses: dict[int, int] = {}
        """Of guests whose process 1 has yet to end."""
        self._nursery = nursery
        self._groups = groups
        self._group = groups.enter_next()  # now that all is imported, which shall not be on the first guest's account
        self._used = False
        """Whether that is a guest's by now."""
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        if os.getpid() != 1:  # as process 1 of a container it is the engine's to end; its guests may try
            signal.signal(signal.SIGTERM, _wake)

    def run(self) -> None:
        """Serves until the judge hangs up."""
        try:
            self._channel.send({"ready": True, "jail": self._nursery.jail, **self._group.message()})
            self._reap()  # what a jail that was refused has left
            while True:
                readable, _, _ = select.select([self._channel, self._woken], [], [], SETTLE_S if self._used else None)
                if not readable:
                    self._move_on()
                    self._look_ahead()
                if self._woken in readable:
                    if signal.SIGTERM in os.read(self._woken, 4096):
                        return
                    self._reap()
                if self._channel in readable:
                    message, fds = self._channel.receive(timeout_s=30)
                    self._fork(message, fds)
        except PeerClosed:
            pass
        finally:
            for born in self._born.values():
                born.kill()
            _kill_orphans(())

    def _move_on(self) -> None:
        """Leaves the control group of the last guest for that of the next."""
        if self._used:
            self._group, self._used = self._groups.enter_next(), False

    def _look_ahead(self) -> None:
        """Has the next guest's jail founded, in that guest's control group."""
        if not self._used:
            self._nursery.look_ahead(self._group.folders)

    def _reap(self) -> None:
        for pid, status in ended():
            born = self._born.pop(pid, None)
            if born is None:
                self._nursery.lost(pid)  # or an orphan of a guest
                continue
            if pid == born.guest:
                self._statuses[pid] = status
                born.kill()  # what it left behind in its group, and in its namespace
            # Process 1 ends when the kernel has ended all others there, and we have waited for the guest.
            if pid == born.awaited:
                self._move_on()  # before the judge hears of it, and removes the group
                _kill_orphans({*self._born, *self._nursery.staff})  # what had left the group, adopted by this process
                status = self._statuses.pop(born.guest, int(signal.SIGKILL))
                self._channel.send({"exited": born.guest, "status": os.waitstatus_to_exitcode(status)})
        self._look_ahead()

    def _fork(self, message: Message, fds: list[int]) -> None:
        guest_socket, log = fds
        self._move_on()

        def become_guest() -> None:
            _become_guest(message, guest_socket, log, self._device, self._arch)

        try:
            born = self._nursery.bear(message["scratch"], become_guest, self._group.folders)
        except OSError as error:
            self._channel.send({"forked": 0, "refused": str(error)})
            return
        finally:
            os.close(guest_socket)
            os.close(log)
        self._born[born.guest] = self._born[born.awaited] = born
        self._channel.send({"forked": born.guest, "awaited": born.awaited, **self._group.message()})
        self._used = True


def _become_guest(message: Message, guest_socket: int, log: int, device: str, arch: str | None) -> None:
    """Turns the forked child into a guest; never returns."""
    status = 1
    try:
        limits.die_with_parent()
        limits.let_others_in()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # Whatever else the zygote holds: its own socket and pipes, and those of other guests.
        os.closerange(3, guest_socket)
        os.closerange(guest_socket + 1, 4096)
        limits.enter_scratch(message["scratch"])
        limits.apply(message["limits"])
        limits.be_ended_first()
        from agentgen.sandbox.guest.serve import serve

        serve(Channel(socket.socket(fileno=guest_socket)), device, arch)
        status = 0
    except BaseException:  # noqa: BLE001  the border: whatever happens, this process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wake(_: int, __: object) -> None:
    """A handler must exist for the wake-up descriptor to be written."""


def _kill_orphans(guests: Collection[int]) -> None:
    """Ends all children but `guests`, and what they leave behind in turn: it is ours when they have ended."""
    while orphans := [child for child in children(os.getpid()) if child not in guests]:
        for child in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in orphans:
            with contextlib.suppress(ChildProcessError):
                # Not one after the other: process 1 of a namespace ends when we have waited for the guest in it.
                os.waitpid(child, os.WNOHANG)
        time.sleep(0.0005)


if __name__ == "__main__":
    main()
