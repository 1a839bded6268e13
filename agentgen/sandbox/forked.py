"""A guest that was forked from a zygote, as the judge holds it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from agentgen.errors import PeerClosed, ProtocolError, SandboxUnavailable
from agentgen.sandbox.cgroup import Group
from agentgen.sandbox.kin import Kin, Stopped, is_stopped, processor_s
from agentgen.sandbox.perf import Perf
from agentgen.sandbox.wire import Channel, close_all

LOG_BYTES = 16384
STOPPING_S = 0.02
"""A thread on another processor runs on until it is interrupted there: microseconds."""


class Keeper(Protocol):
    """What is needed of its sandbox."""

    device: str

    def kin(self, pid: int) -> Kin: ...
    def exit_status(self, pid: int, timeout_s: float = 0.0) -> int | None: ...
    def leave(self, scratch: Path) -> None: ...


class ProcessGuest:
    """A forked process group."""

    def __init__(
        self,
        sandbox: Keeper,
        pids: tuple[int, int],
        channel: Channel,
        log: int,
        scratch: Path,
        group: Group | None = None,
    ) -> None:
        """Takes the ids of the guest and of what ends with it: itself, or process 1 of its namespace."""
        self.pid, self._first = pids
        self._sandbox = sandbox
        self._channel = channel
        self.scratch = scratch
        self._group = group
        self._status: int | None = None
        self._killed = False
        self._since: tuple[float, float] | None = None
        """Of the pause that goes on: when it began, and the processor time used until then."""
        self._stopped = Stopped()
        self._hung_up = False
        self._tail = bytearray()
        # Before it has threads or children: they are sampled too.
        self._perf = _perf(self.pid) if sandbox.device == "cpu" else None
        self._reader = threading.Thread(target=self._drain, args=(log,), daemon=True)
        self._reader.start()

    def post(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Sends a command. What lies there before it is no answer to it: taken for one, it would stop our clock."""
        try:
            self._channel.require_silence()
            self._channel.send(message, fds)
        except PeerClosed:
            self._hung_up = True
            raise

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Returns the claim."""
        try:
            answer, unwanted = self._channel.receive(timeout_s)
        except PeerClosed:
            self._hung_up = True  # it is ending: its exit status is on the way
            raise
        if unwanted:
            close_all(unwanted)
            raise ProtocolError("the guest sent descriptors")
        return answer

    def pause(self) -> None:
        """SIGSTOP to the group; returns when it stands."""
        self._signal(signal.SIGSTOP)
        begun = time.monotonic()
        while not is_stopped(self.pid) and time.monotonic() < begun + STOPPING_S:
            pass
        with contextlib.suppress(OSError):
            self._since = begun, processor_s(self.pid)

    def resume(self) -> None:
        """SIGCONT to the group."""
        if self._since:
            begun, used_s = self._since
            with contextlib.suppress(OSError):
                worked_s = self._stopped.worked_s + processor_s(self.pid) - used_s
                self._stopped = Stopped(self._stopped.seconds + time.monotonic() - begun, worked_s)
            self._since = None
        self._signal(signal.SIGCONT)

    def stopped(self) -> Stopped:
        """What it did while it was to stand still."""
        return self._stopped

    def kin(self) -> Kin:
        """What other processes it has, in whatever session."""
        return self._sandbox.kin(self.pid)

    def samples(self) -> Counter[str] | None:
        """Where its processor time went, if the kernel lets us see that."""
        return self._perf.take() if self._perf else None

    def forget_samples(self) -> None:
        """Drops what `samples` would return now."""
        if self._perf:
            self._perf.forget()

    def kill(self) -> None:
        """SIGKILL to the group; waits until the kernel has given everything back."""
        if self._killed:
            return
        self._killed = True
        try:
            self._status = self._status if self._status is not None else self._sandbox.exit_status(self.pid)
            self._signal(signal.SIGKILL)
            if self._status is None:
                if self._first != self.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._first, signal.SIGKILL)
                if self._sandbox.exit_status(self.pid, timeout_s=10) is None:
                    raise SandboxUnavailable(f"guest {self.pid} does not end, though it was killed")
        finally:
            if self._perf:
                self._perf.close()
            self._channel.close()
            self._reader.join(1)
            if self._group:
                self._group.remove()
            self._sandbox.leave(self.scratch)

    @property
    def exit_status(self) -> int | None:
        """How it ended by itself."""
        if self._status is None and not self._killed:
            self._status = self._sandbox.exit_status(self.pid, timeout_s=1.0 if self._hung_up else 0.0)
        return self._status

    @property
    def starved(self) -> str | None:
        """What its control group allows, if that was too little."""
        return self._group.words if self._group and self._group.starved else None

    @property
    def log(self) -> str:
        """The last 16 KiB of its output."""
        return bytes(self._tail).decode(errors="replace")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _drain(self, fd: int) -> None:
        with open(fd, "rb", buffering=0) as pipe:
            while chunk := pipe.read(65536):
                self._tail += chunk
                del self._tail[:-LOG_BYTES]


def _perf(pid: int) -> Perf | None:
    try:
        return Perf(pid)
    except OSError:
        return None
