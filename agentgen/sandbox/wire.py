"""Messages between processes: a 4-byte big-endian length, then that many bytes of JSON; file descriptors ride along.

Never pickle: the peer of a judge may be hostile, and JSON can only be data. A message has a size limit and a total
deadline, so a peer can neither fill our memory nor hold us by sending one byte a second.
"""

from __future__ import annotations

import array
import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agentgen.errors import PeerClosed, ProtocolError

MAX_MESSAGE_BYTES = 32 << 20
MAX_FDS = 8
_HEADER = struct.Struct(">I")

Message = dict[str, Any]


class Channel:
    """One end of a Unix stream socket. Owns the socket. Not safe for two threads at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._partial = bytearray()
        self._fds: list[int] = []

    def fileno(self) -> int:
        """Returns the socket's descriptor, for select."""
        return self._sock.fileno()

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = (), timeout_s: float | None = 30.0) -> None:
        """Sends one message; `fds` stay open here and arrive as duplicates there.

        Raises:
            PeerClosed: the other end is gone.
            ProtocolError: the message is too large.
            TimeoutError: the peer does not read.
        """
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"a message of {len(body)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        data = _HEADER.pack(len(body)) + body
        self._sock.settimeout(timeout_s)
        try:
            sent = self._sock.sendmsg([data], ancillary)
            if sent < len(data):  # sendall of nothing waits for room all the same
                self._sock.sendall(data[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerClosed("the peer closed the socket") from error

    def receive(self, timeout_s: float | None = None) -> tuple[Message, list[int]]:
        """Receives one message and the descriptors that came with it (the caller owns them).

        Raises:
            PeerClosed: the other end is gone.
            ProtocolError: the bytes are no message.
            TimeoutError: no whole message within `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self._fill(_HEADER.size, deadline)
            (length,) = _HEADER.unpack_from(self._partial)
            if length > MAX_MESSAGE_BYTES:
                raise ProtocolError(f"the peer announced {length} bytes, over the limit of {MAX_MESSAGE_BYTES}")
            self._fill(_HEADER.size + length, deadline)
            message = json.loads(self._partial[_HEADER.size :])
            if not isinstance(message, dict):
                raise ProtocolError("the peer sent JSON that is no object")
        except TimeoutError:
            raise  # what has come is kept: the rest may follow, and the next `receive` goes on with it
        except (ValueError, RecursionError) as error:
            self._drop()
            raise ProtocolError(f"the peer sent what is no JSON: {error}") from error
        except BaseException:
            self._drop()
            raise
        fds, self._fds = self._fds, []
        self._partial.clear()
        return message, fds

    def _fill(self, count: int, deadline: float | None) -> None:
        while len(self._partial) < count:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError("no whole message in time")
            self._sock.settimeout(left)
            try:
                data, ancillary, flags, _ = self._sock.recvmsg(
                    min(count - len(self._partial), 1 << 20),
                    socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize),
                    socket.MSG_CMSG_CLOEXEC,
                )
            except ConnectionResetError as error:
                raise PeerClosed("the peer closed the socket") from error
            self._fds.extend(_fds_of(ancillary))
            if flags & socket.MSG_CTRUNC or len(self._fds) > MAX_FDS:
                raise ProtocolError(f"the peer sent more than {MAX_FDS} descriptors")
            if not data:
                raise PeerClosed("the peer closed the socket")
            self._partial += data

    def _drop(self) -> None:
        close_all(self._fds)
        self._fds = []
        self._partial.clear()

    def close(self) -> None:
        """Closes the socket."""
        self._drop()
        self._sock.close()


def pair() -> tuple[Channel, socket.socket]:
    """Returns a channel and the raw other end, to be passed to another process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours), theirs


def close_all(fds: Sequence[int]) -> None:
    """Closes received descriptors that nobody will use."""
    for fd in fds:
        socket.close(fd)


def _fds_of(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds.tolist()
