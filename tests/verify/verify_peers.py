"""Guests whose words come from the test, over a real socket; the process that is looked at and killed only sleeps."""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentgen.errors import ProtocolError
from agentgen.sandbox.process import ANSWER_BYTES, ProcessGuest, ProcessSandbox
from agentgen.sandbox.wire import Channel, close_all, pair
from agentgen.verify.session import Session

Play = Callable[[socket.socket], None]
"""What the guest does about one command."""


class Elsewhere(ProcessSandbox):
    """Has no zygote; its only guest ended with a given status."""

    def __init__(self, status: int | None) -> None:
        self._ended = status
        self.device = "cpu"

    def leave(self, scratch: Path) -> None:
        """Nothing to remove."""

    def exit_status(self, pid: int, timeout_s: float = 0.0) -> int | None:
        """Returns the status given, and that of a process that was killed."""
        return -9 if timeout_s >= 10 else self._ended


class Impatient(ProcessGuest):
    """A guest that the judge waits for no longer than `patience_s`; its own limits are minutes."""

    patience_s = 10.0

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Returns the claim."""
        return super().answer(min(timeout_s, self.patience_s))


@contextmanager
def talking(plays: Sequence[Play], status: int | None = None, patience_s: float = 10.0) -> Generator[Session]:
    """Yields a session with a guest that does the first play at the first command and so on, and then hangs up.
    Afterwards no descriptor and no thread is left."""
    before = set(os.listdir("/proc/self/fd"))
    ours, theirs = pair(ANSWER_BYTES)
    read, write = os.pipe()
    os.close(write)
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    guest = Impatient(Elsewhere(status), (process.pid, process.pid), ours, read, Path())
    guest.patience_s = patience_s
    peer = threading.Thread(target=_perform, args=(theirs, plays))
    peer.start()
    session = Session(guest, None)
    try:
        yield session
    finally:
        session.close()
        assert process.wait(10) == -signal.SIGKILL
        peer.join(10)
        assert not peer.is_alive()
    assert set(os.listdir("/proc/self/fd")) == before


def _perform(theirs: socket.socket, plays: Sequence[Play]) -> None:
    channel = Channel(theirs)
    with theirs, contextlib.suppress(ProtocolError, OSError):
        for play in plays:
            _, fds = channel.receive(20)
            close_all(fds)
            theirs.settimeout(20)
            play(theirs)


def raw(data: bytes, *fds: int) -> Play:
    return lambda sock: _send(sock, data, fds)


def _send(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    if data:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = sock.sendmsg([data], rights)
        sock.sendall(data[sent:])


def frame(value: Any) -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack(">I", len(body)) + body
