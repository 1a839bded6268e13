"""The wire: what is sent arrives, and whatever a hostile peer sends ends in one of three errors, leaking nothing."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_wires import connected, frame, send_raw

from agentgen.errors import PeerClosed, ProtocolError
from agentgen.sandbox.wire import MAX_FDS, MAX_MESSAGE_BYTES, Channel, close_all

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def nothing() -> Iterator[int]:
    """A descriptor to send."""
    fd = os.open(os.devnull, os.O_RDONLY)
    yield fd
    os.close(fd)


# ---- what is sent arrives --------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(), JSON))
def test_a_message_arrives_as_it_was_sent(message: dict[str, Any]) -> None:
    with connected() as (ours, theirs):
        ours.send(message)
        received, fds = Channel(theirs).receive(5)
        assert received == message
        assert fds == []


def test_messages_arrive_in_order_and_apart() -> None:
    with connected() as (ours, theirs):
        for number in range(20):
            ours.send({"number": number})
        peer = Channel(theirs)
        assert [peer.receive(5)[0]["number"] for _ in range(20)] == list(range(20))


def test_descriptors_arrive_as_duplicates_of_what_was_sent() -> None:
    with connected() as (ours, theirs):
        files = [os.memfd_create(f"file {i}") for i in range(MAX_FDS)]
        ours.send({"files": len(files)}, files)
        _, received = Channel(theirs).receive(5)
        assert [os.fstat(fd).st_ino for fd in received] == [os.fstat(fd).st_ino for fd in files]
        assert not set(received) & set(files)
        close_all([*files, *received])


def test_descriptors_stay_with_their_message(nothing: int) -> None:
    with connected() as (ours, theirs):
        ours.send({"first": 1})
        ours.send({"second": 2}, (nothing,))
        ours.send({"third": 3})
        peer = Channel(theirs)
        counts: list[int] = []
        for _ in range(3):
            _, fds = peer.receive(5)
            counts.append(len(fds))
            close_all(fds)
        assert counts == [0, 1, 0]


def test_a_message_larger_than_the_socket_s_buffer_arrives() -> None:
    with connected() as (ours, theirs):
        message = {"text": "x" * (8 << 20)}
        sender = threading.Thread(target=ours.send, args=(message,))
        sender.start()
        assert Channel(theirs).receive(10)[0] == message
        sender.join()


# ---- what goes wrong on the way out ----------------------------------------------------------------------------------


def test_a_message_over_the_limit_is_not_sent() -> None:
    with connected() as (ours, theirs):
        with pytest.raises(ProtocolError, match="over the limit"):
            ours.send({"text": "x" * MAX_MESSAGE_BYTES})
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)


def test_sending_to_a_peer_that_is_gone() -> None:
    with connected() as (ours, theirs):
        theirs.close()
        with pytest.raises(PeerClosed):
            ours.send({"a": 1})


def test_sending_to_a_peer_that_does_not_read_ends_in_time() -> None:
    with connected() as (ours, _):
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            ours.send({"text": "x" * (8 << 20)}, timeout_s=0.2)
        assert time.monotonic() - start < 2


def test_hanging_up_ends_the_wait_of_another_thread() -> None:
    with connected() as (ours, theirs):
        timer = threading.Timer(0.05, ours.hang_up)
        timer.start()
        with pytest.raises(PeerClosed):
            ours.receive(30)
        timer.join()
        assert theirs.recv(1) == b"", "the peer sees it too"
        with pytest.raises(PeerClosed):
            ours.send({})
        ours.hang_up()


def test_a_message_that_just_fits_into_the_socket_is_sent() -> None:
    with connected() as (ours, theirs):
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 100_000:
                ours.send({"number": sent}, timeout_s=0.05)
                sent += 1
        ours.close()
        peer, arrived = Channel(theirs), 0
        with contextlib.suppress(PeerClosed):
            while peer.receive(5):
                arrived += 1
        assert arrived == sent


# ---- hostile peers ---------------------------------------------------------------------------------------------------

HOSTILE = st.one_of(
    st.binary(max_size=200),
    st.binary(max_size=200).map(frame),
    JSON.map(lambda value: frame(json.dumps(value).encode())),
    st.text(alphabet='{}[]",:0123456789.eE-+ntf\\u', max_size=80).map(lambda text: frame(text.encode())),
    st.tuples(st.integers(0, 2**32 - 1).map(struct.Struct(">I").pack), st.binary(max_size=50)).map(b"".join),
)


@given(data=HOSTILE, fds=st.integers(0, MAX_FDS + 4), closes=st.booleans())
def test_whatever_bytes_come_end_in_a_message_or_one_of_three_errors(
    nothing: int, data: bytes, fds: int, closes: bool
) -> None:
    with connected() as (ours, theirs):
        if data:
            send_raw(theirs, data, *[nothing] * fds)
        if closes:
            theirs.close()
        with contextlib.suppress(ProtocolError, TimeoutError):
            message, received = ours.receive(0.005)
            close_all(received)
            assert type(message) is dict  # pyright: ignore[reportUnnecessaryComparison]  json.loads knows no types
            assert fds <= MAX_FDS


@pytest.mark.parametrize("size", [MAX_MESSAGE_BYTES + 1, 2**32 - 1])
def test_an_oversized_announcement_is_refused_before_anything_is_read(size: int) -> None:
    with connected() as (ours, theirs):
        theirs.sendall(struct.pack(">I", size))
        with pytest.raises(ProtocolError, match=f"announced {size} bytes"):
            ours.receive(5)


def test_the_largest_announcement_without_a_body_takes_no_memory_and_no_longer_than_asked() -> None:
    with connected() as (ours, theirs):
        theirs.sendall(struct.pack(">I", MAX_MESSAGE_BYTES) + b"{")
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            ours.receive(0.1)
        assert time.monotonic() - start < 1


def test_a_slow_drip_meets_the_deadline_of_the_whole_message() -> None:
    def drip(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for byte in frame(b'{"a": "' + b"x" * 1000 + b'"}'):
                sock.sendall(bytes([byte]))
                time.sleep(0.02)

    with connected() as (ours, theirs):
        sender = threading.Thread(target=drip, args=(theirs,))
        sender.start()
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            ours.receive(0.3)
        assert time.monotonic() - start < 1.5
        ours.close()
        sender.join()


@pytest.mark.parametrize("fds", [0, 2])
def test_closing_at_every_byte(nothing: int, fds: int) -> None:
    whole = frame(b'{"ok":true}')
    for cut in range(len(whole)):
        with connected() as (ours, theirs):
            if cut:
                send_raw(theirs, whole[:cut], *[nothing] * fds)
            theirs.close()
            with pytest.raises(PeerClosed):
                ours.receive(5)


def test_a_peer_that_dies_with_unread_messages_is_closed() -> None:
    with connected() as (ours, theirs):
        ours.send({"never": "read"})
        theirs.close()  # the kernel answers ECONNRESET, not an end of file
        with pytest.raises(PeerClosed):
            ours.receive(5)


@pytest.mark.parametrize("body", [b"[]", b"[1]", b"1", b"null", b"true", b'"text"', b"NaN"])
def test_json_that_is_no_object(nothing: int, body: bytes) -> None:
    with connected() as (ours, theirs):
        send_raw(theirs, frame(body), nothing)
        with pytest.raises(ProtocolError, match="no object"):
            ours.receive(5)


NO_JSON = {
    "empty": b"",
    "cut": b"{",
    "single quotes": b"{'a': 1}",
    "two objects": b'{"a": 1} {"b": 2}',
    "utf-16": b"\xff\xfe",
    "no utf-8": b'{"a": "\xff"}',
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 200_000,
    "many digits": b'{"a": ' + b"9" * 100_000 + b"}",
    "a pickle": b"\x80\x04}.",
}


@pytest.mark.parametrize("body", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json(nothing: int, body: bytes) -> None:
    with connected() as (ours, theirs):
        sender = threading.Thread(target=send_all_with, args=(theirs, frame(body), nothing))
        sender.start()
        with pytest.raises(ProtocolError, match="no JSON"):
            ours.receive(5)
        sender.join()


def send_all_with(sock: socket.socket, data: bytes, fd: int) -> None:
    sent = sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
    sock.sendall(data[sent:])


@pytest.mark.parametrize("count", [MAX_FDS + 1, 64, 253])
def test_too_many_descriptors_at_once(nothing: int, count: int) -> None:
    with connected() as (ours, theirs):
        send_raw(theirs, frame(b"{}"), *[nothing] * count)
        with pytest.raises(ProtocolError, match="descriptors"):
            ours.receive(5)


def test_too_many_descriptors_spread_over_one_message(nothing: int) -> None:
    with connected() as (ours, theirs):
        whole = frame(b'{"ok":true}')
        send_raw(theirs, whole[:4], *[nothing] * MAX_FDS)
        send_raw(theirs, whole[4:], nothing)
        with pytest.raises(ProtocolError, match="descriptors"):
            ours.receive(5)


def test_descriptors_of_a_message_that_never_ends_are_closed(nothing: int) -> None:
    with connected() as (ours, theirs):
        send_raw(theirs, frame(b'{"ok":true}')[:-1], *[nothing] * MAX_FDS)
        with pytest.raises(TimeoutError):
            ours.receive(0.05)
