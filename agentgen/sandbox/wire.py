"""Messages between processes: a 4-byte big-endian length, then that many bytes of JSON; file descriptors ride along.

Never pickle: the peer of a judge may be hostile, and JSON can only be data. A message has a size limit and a total
deadline, so a peer can neither fill our memory nor hold us by sending one byte a second. A stream on which something
went wrong is never read or written again: where its next message begins only the peer would know.

Not covered: NaN and Infinity, which Python's JSON has, are numbers here; who must not meet them checks for them.
"""

from __future__ import annotations

import array
import contextlib
import errno
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentgen.errors import PeerClosed, ProtocolError

MAX_MESSAGE_BYTES = 32 << 20
MAX_FDS = 8
CLOSE_S = 0.2
_KERNEL_MAX_FDS = 253
"""SCM_MAX_FD: what `sendmsg` can carry. What finds no room here the kernel closes in our name, and we would wait."""
_HEADER = struct.Struct(">I")
_NO_LINGER = struct.pack("ii", 0, 0)

Message = dict[str, Any]


class Channel:
    """One end of a Unix stream socket. Owns the socket. Not safe for two threads at once, except for
    `hang_up`."""

    def __init__(self, sock: socket.socket, limit_bytes: int = MAX_MESSAGE_BYTES) -> None:
        """Takes over `sock`; a message of more than `limit_bytes` is not received."""
        self._sock = sock
        self._limit = limit_bytes
        self._partial = bytearray()
        self._fds: list[int] = []
        self._broken = ""

    def fileno(self) -> int:
        """Returns the socket's descriptor, for select."""
        return self._sock.fileno()

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = (), timeout_s: float | None = 30.0) -> None:
        """Sends one message; `fds` stay open here and arrive as duplicates there.

        Raises:
            PeerClosed: the other end is gone.
            ProtocolError: the message is too large, or an earlier one could be sent only in part.
            TimeoutError: the peer does not read.
        """
        self._require_sound()
        body = json.dumps(message, separators=(",", ":")).encode()
        if len(body) > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"a message of {len(body)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        data, sent = memoryview(_HEADER.pack(len(body)) + body), 0
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            while sent < len(data):
                self._sock.settimeout(_left(deadline, "the peer does not read"))
                sent += self._sock.sendmsg([data[sent:]], [] if sent else ancillary)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerClosed("the peer closed the socket") from error
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:  # this user's processes have too many descriptors under way
                raise ProtocolError(f"descriptors cannot be sent: {error.strerror}") from error
            raise
        finally:
            if 0 < sent < len(data):
                self._broken = "an earlier message was sent only in part"

    def receive(self, timeout_s: float | None = None) -> tuple[Message, list[int]]:
        """Receives one message and the descriptors that came with it (the caller owns them).

        Raises:
            PeerClosed: the other end is gone.
            ProtocolError: the bytes are no message, or an earlier one was none.
            TimeoutError: no whole message within `timeout_s`; what has come is kept, and the next call goes on with it.
        """
        self._require_sound()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self._fill(_HEADER.size, deadline)
            (length,) = _HEADER.unpack_from(self._partial)
            if length > self._limit:
                raise ProtocolError(f"the peer announced {length} bytes, over the limit of {self._limit}")
            self._fill(_HEADER.size + length, deadline)
            message = _parsed(self._partial[_HEADER.size :])
        except TimeoutError:
            raise
        except BaseException as error:
            self._drop()
            if not isinstance(error, PeerClosed):
                self._broken = f"an earlier message could not be received: {error}"
            raise
        fds, self._fds = self._fds, []
        self._partial.clear()
        return message, fds

    def require_silence(self) -> None:
        """Looks, without waiting, whether the peer is still there and has said nothing that was not received yet.

        Raises:
            PeerClosed: the other end is gone.
            ProtocolError: it spoke before it was asked.
        """
        self._require_sound()
        self._sock.settimeout(0)
        try:
            waiting = self._partial or self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except ConnectionResetError as error:
            raise PeerClosed("the peer closed the socket") from error
        if not waiting:
            raise PeerClosed("the peer closed the socket")
        raise ProtocolError("the peer spoke before it was asked")

    def _fill(self, count: int, deadline: float | None) -> None:
        while len(self._partial) < count:
            self._sock.settimeout(_left(deadline, "no whole message in time"))
            try:
                data, ancillary, flags, _ = self._sock.recvmsg(
                    min(count - len(self._partial), 1 << 20),
                    socket.CMSG_SPACE(_KERNEL_MAX_FDS * array.array("i").itemsize),
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

    def _require_sound(self) -> None:
        if self._broken:
            raise ProtocolError(self._broken)

    def _drop(self) -> None:
        close_all(self._fds)
        self._fds = []
        self._partial.clear()

    def hang_up(self) -> None:
        """Ends the conversation, also of a thread that waits for a message: it and the peer see a closed socket."""
        with contextlib.suppress(OSError):  # closed already, by either side
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket."""
        self._drop()
        _aside(self._sock.close)  # descriptors that nobody has received are closed with it


def pair(limit_bytes: int = MAX_MESSAGE_BYTES) -> tuple[Channel, socket.socket]:
    """Returns a channel and the raw other end, to be passed to another process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours, limit_bytes), theirs


def close_all(fds: Sequence[int]) -> None:
    """Closes received descriptors that nobody will use. Takes no longer than `CLOSE_S`, whatever they are: with
    SO_LINGER a socket holds whoever closes it last for as long as its sender has chosen."""
    if not fds:
        return
    for fd in fds:
        with contextlib.suppress(OSError):  # it is no socket
            sock = socket.socket(fileno=fd)
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            sock.detach()

    def close_each() -> None:
        for fd in fds:
            with contextlib.suppress(OSError):  # closed all the same; what could not be written is not ours
                socket.close(fd)

    _aside(close_each)


def _aside(close: Callable[[], None]) -> None:
    """Closes in a thread of its own, and leaves it behind if that takes long."""
    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    thread.join(CLOSE_S)


def _left(deadline: float | None, late: str) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(late)
    return left


def _parsed(body: bytearray) -> Message:
    """Returns the object that `body` is.

    Raises:
        ProtocolError: it is none: no UTF-8, no JSON, nested too deep, a number of too many digits, a key that comes
            twice, or JSON of another kind.
    """
    try:
        # `json.loads` of bytes would guess at other encodings and let half of a surrogate pair through.
        message = json.loads(body.decode(), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the peer sent what is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError("the peer sent JSON that is no object")
    return message  # pyright: ignore[reportUnknownVariableType]  keys of JSON are text


def _object(pairs: list[tuple[str, Any]]) -> Message:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


def _fds_of(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return fds.tolist()
