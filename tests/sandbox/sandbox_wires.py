"""A channel and its peer as a raw socket, which may send anything."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager

from agentgen.errors import ProtocolError
from agentgen.sandbox.wire import MAX_MESSAGE_BYTES, Channel, close_all, pair

ANSWER = b'{"ok":true,"state":[{"name":"w","shape":[2,3]}],"seconds":0.25,"failure":null}'
SLACK_S = 1.5
"""What a busy machine may add to a deadline."""


@contextmanager
def connected(limit_bytes: int = MAX_MESSAGE_BYTES) -> Generator[tuple[Channel, socket.socket]]:
    """Our channel and the peer's raw socket; afterwards both are closed and no descriptor has been left."""
    before = set(os.listdir("/proc/self/fd"))
    ours, theirs = pair(limit_bytes)
    try:
        yield ours, theirs
    finally:
        ours.close()
        theirs.close()
    assert set(os.listdir("/proc/self/fd")) <= before  # what a test before left may just be closed


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def send_raw(sock: socket.socket, data: bytes, *fds: int) -> None:
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def received(channel: Channel, timeout_s: float = 0.02) -> list[int]:
    """Receives until something ends it: an error of the three. Returns how many descriptors each message had."""
    counts: list[int] = []
    with contextlib.suppress(ProtocolError, TimeoutError):
        while True:
            message, fds = channel.receive(timeout_s)
            assert type(message) is dict  # pyright: ignore[reportUnnecessaryComparison]  json.loads knows no types
            counts.append(len(fds))
            close_all(fds)
    return counts
