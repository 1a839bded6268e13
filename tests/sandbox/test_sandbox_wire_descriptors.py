"""Descriptors that a hostile peer sends: a TCP socket with SO_LINGER and data that nobody reads holds whoever closes it
last for as long as its sender has chosen."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from sandbox_processes import lingering
from sandbox_wires import ANSWER, SLACK_S, connected, frame, received, send_raw

from agentgen.sandbox.wire import CLOSE_S, MAX_FDS, close_all

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("said", "count"),
    [(frame(ANSWER), 1), (frame(ANSWER), MAX_FDS + 1), (frame(b"{"), 2), (b"\0", 200)],
    ids=["with a message", "with a message, too many", "with garbage", "with a part"],
)
def test_closing_what_a_peer_has_sent_takes_no_time(said: bytes, count: int) -> None:
    with connected() as (ours, theirs), lingering(60) as held:
        send_raw(theirs, said, *[held.fileno()] * count)
        held.close()
        theirs.shutdown(socket.SHUT_WR)
        start = time.monotonic()
        received(ours, 5)
        ours.close()
        assert time.monotonic() - start < SLACK_S


def test_closing_with_descriptors_that_nobody_received_takes_a_moment() -> None:
    """They cannot be disarmed: the kernel closes them."""
    with connected() as (ours, theirs), lingering(60) as held:
        send_raw(theirs, frame(ANSWER), held.fileno())
        held.close()
        start = time.monotonic()
        ours.close()
        assert CLOSE_S <= time.monotonic() - start < CLOSE_S + SLACK_S


TOO_MANY = """
import array, os, resource, socket
from agentgen.errors import ProtocolError
from agentgen.sandbox.wire import pair

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
if os.getuid() == 0:
    os.setuid(65534)
ours, theirs = pair()
a, b = socket.socketpair()
try:
    while True:
        a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
except OSError:
    pass
try:
    ours.send({"a": 1}, (0,))
except ProtocolError as error:
    print(error)
"""


def test_a_user_with_too_many_descriptors_under_way() -> None:
    """A guest of our user can bring that about."""
    done = subprocess.run(
        [sys.executable, "-c", TOO_MANY],
        env={"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "descriptors cannot be sent" in done.stdout, done.stderr


def descriptors(fds: Sequence[int]) -> set[int]:
    return {fd for fd in fds if os.path.exists(f"/proc/self/fd/{fd}")}


def test_closing_closes_all_whatever_they_are() -> None:
    a, b = socket.socketpair()
    read, write = os.pipe()
    fds = [a.detach(), b.detach(), read, write, os.open(os.devnull, os.O_RDONLY)]
    close_all([fds[0], 1 << 20, *fds[1:]])
    assert descriptors(fds) == set()
