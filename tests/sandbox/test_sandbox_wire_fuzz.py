"""The wire against a peer that does its worst: whatever comes, in whatever pieces, ends in a message or in one of three
errors, in time, with no descriptor left open."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sandbox_wires import ANSWER, SLACK_S, connected, frame, received, send_raw

from agentgen.errors import PeerClosed, ProtocolError
from agentgen.sandbox.wire import MAX_FDS, Channel

quick = settings(derandomize=True, max_examples=60, deadline=None, database=None)

STEP = st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 0, 0.001]))
"""How many descriptors go with a piece, and the pause after it."""


@pytest.fixture(scope="module")
def nothing() -> Iterator[int]:
    """A descriptor to send."""
    fd = os.open(os.devnull, os.O_RDONLY)
    yield fd
    os.close(fd)


# ---- any bytes, in any pieces ----------------------------------------------------------------------------------------


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid frame with a few of its bytes replaced, left out or doubled: its length, too."""
    data = bytearray(frame(ANSWER))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


STREAM = st.lists(
    st.one_of(st.just(frame(ANSWER)), mutated(), st.binary(max_size=100), st.binary(max_size=60).map(frame)),
    min_size=1,
    max_size=4,
).map(b"".join)


@quick
@given(stream=STREAM, steps=st.lists(STEP, min_size=1, max_size=5), data=st.data())
def test_any_stream_in_any_pieces_with_any_descriptors(
    nothing: int, stream: bytes, steps: list[tuple[int, float]], data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), min_size=len(steps) - 1, max_size=len(steps) - 1))
    pieces = [stream[a:b] for a, b in pairwise([0, *sorted(cuts), len(stream)])]
    with connected() as (ours, theirs):

        def play() -> None:
            for piece, (fds, pause_s) in zip(pieces, steps, strict=True):
                if piece:
                    send_raw(theirs, piece, *[nothing] * fds)
                time.sleep(pause_s)
            theirs.shutdown(socket.SHUT_WR)

        peer = threading.Thread(target=play)
        peer.start()
        start = time.monotonic()
        counts = received(ours, 0.5)
        assert time.monotonic() - start < 0.5 + SLACK_S
        peer.join()
        assert all(count <= MAX_FDS for count in counts)


@quick
@given(bodies=st.lists(st.binary(max_size=20), max_size=5), cut=st.integers(1, 30))
def test_whole_messages_arrive_before_the_peer_is_found_gone(bodies: list[bytes], cut: int) -> None:
    whole = b"".join(frame(json.dumps({"text": body.hex()}).encode()) for body in bodies)
    last = frame(ANSWER)[:cut]
    with connected() as (ours, theirs):
        theirs.sendall(whole + last)
        theirs.close()
        assert [ours.receive(5)[0]["text"] for _ in bodies] == [body.hex() for body in bodies]
        with pytest.raises(PeerClosed):
            ours.receive(5)


@quick
@given(stream=mutated())
def test_a_stream_that_made_no_sense_once_is_not_read_again(stream: bytes) -> None:
    """What follows might be anything: the middle of a message, taken for a message."""
    with connected() as (ours, theirs):
        theirs.sendall(stream + frame(b"[]") + frame(ANSWER))
        try:
            while True:
                ours.receive(0.01)
        except TimeoutError:
            return  # the length has become one that takes in all of it, and more
        except ProtocolError:
            pass
        for _ in range(2):
            with pytest.raises(ProtocolError, match="an earlier message"):
                ours.receive(0.01)
        with pytest.raises(ProtocolError, match="an earlier message"):
            ours.send({"do": "ping"})


# ---- sizes -----------------------------------------------------------------------------------------------------------


def padded(size: int) -> bytes:
    return b'{"a":"' + b"x" * (size - 8) + b'"}'


def test_a_message_of_exactly_the_limit_arrives_and_one_byte_more_does_not() -> None:
    with connected(1000) as (ours, theirs):
        theirs.sendall(frame(padded(1000)))
        assert len(ours.receive(5)[0]["a"]) == 992
        theirs.sendall(frame(padded(1001)))
        with pytest.raises(ProtocolError, match="announced 1001 bytes, over the limit of 1000"):
            ours.receive(5)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"ok":true,"ok":false}', "twice"),
        (b'{"a":{"b":1,"b":1}}', "twice"),
        (b'{"a":"\xed\xa0\x80"}', "utf-8"),
        ('{"a": 1}'.encode("utf-16-le"), "property name"),
        (b'\xef\xbb\xbf{"a":1}', "BOM"),
        (b'{"a":"\x00"}', "control character"),
        (b'{"a":1}\x00', "Extra data"),
    ],
    ids=["a key twice", "inside", "half a pair", "utf-16", "byte order mark", "raw NUL", "trailing NUL"],
)
def test_json_that_parsers_differ_about_is_refused(body: bytes, said: str) -> None:
    with connected() as (ours, theirs):
        theirs.sendall(frame(body))
        with pytest.raises(ProtocolError, match=f"no JSON.*{said}"):
            ours.receive(5)


# ---- a peer that speaks out of turn ----------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [b"\0", frame(ANSWER), frame(ANSWER)[:-1]], ids=["a byte", "an answer", "a part"])
@pytest.mark.parametrize("looked", [False, True], ids=["in the socket", "already here"])
def test_what_was_said_before_its_time_is_noticed(early: bytes, looked: bool) -> None:
    with connected() as (ours, theirs):
        theirs.sendall(frame(ANSWER) + early)
        ours.receive(5)
        if looked:
            with contextlib.suppress(TimeoutError):
                ours.receive(0.01)
                theirs.sendall(b"\0")
        with pytest.raises(ProtocolError, match="before it was asked"):
            ours.require_silence()


def test_silence_is_no_error_and_an_end_is_no_silence() -> None:
    with connected() as (ours, theirs):
        ours.require_silence()
        theirs.sendall(frame(ANSWER))
        ours.receive(5)
        ours.require_silence()
        ours.send({"never": "read"})
        theirs.close()
        with pytest.raises(PeerClosed):
            ours.require_silence()


# ---- a peer that does not read ---------------------------------------------------------------------------------------


def test_after_half_a_message_nothing_more_is_sent() -> None:
    """It would be read as the rest of the first."""
    with connected() as (ours, theirs):
        with pytest.raises(TimeoutError):
            ours.send({"text": "x" * (4 << 20)}, timeout_s=0.1)
        with pytest.raises(ProtocolError, match="only in part"):
            ours.send({"do": "ping"})
        ours.close()
        peer = Channel(theirs)
        with pytest.raises(PeerClosed):
            peer.receive(5)


def test_a_peer_that_reads_slowly_meets_the_deadline_of_the_whole_message() -> None:
    def sip(sock: socket.socket, done: threading.Event) -> None:
        while not done.wait(0.01):
            sock.recv(1000)

    with connected() as (ours, theirs):
        done = threading.Event()
        peer = threading.Thread(target=sip, args=(theirs, done))
        peer.start()
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            ours.send({"text": "x" * (4 << 20)}, timeout_s=0.2)
        assert time.monotonic() - start < 0.2 + SLACK_S
        done.set()
        peer.join()
