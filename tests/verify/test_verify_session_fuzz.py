"""A session with a guest that does anything on its socket: it ends in claims or in a rejection, in time, with nothing
left open, and what it leaves behind can be printed and stored.

Not covered: a candidate that finds the socket in its own process (test_sandbox_process.py).
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from verify_peers import Play, frame, raw, talking
from verify_problems import small_conv

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.sandbox.process import ANSWER_BYTES
from agentgen.verify.findings import Rejected
from agentgen.verify.reference import load
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session

SLACK_S = 2.0
"""What a busy machine may add to a deadline."""
CANDIDATE = Candidate(source="class ModelNew: ...", language=Language.CPP)
quick = settings(derandomize=True, max_examples=60, deadline=None, database=None)

COMMANDS: list[dict[str, Any]] = [
    {"ok": True, "builds": [{"kernel": "conv", "registers": 40, "spill_bytes": 0}]},
    {
        "ok": True,
        "prepare": True,
        "state": [
            {"name": "conv.weight", "shape": [8, 3, 3, 3], "dtype": "float32", "digest": "00"},
            {"name": "conv.bias", "shape": [8], "dtype": "float32", "digest": "00"},
        ],
    },
    {"ok": True},
    {"ok": True},
    {"ok": True},
    {"ok": True, "seconds": 1e-3, "dispatched": {"aten.empty.memory_format": 3}},
    {"ok": True, "queued": True},
    {"ok": True},
    {"ok": True, "seconds": 1e-3},
]
"""What an honest guest answers to load, construct, share, share, weights, a window, and one armed, let go, finished."""


class Idle:
    """Watches nothing."""

    def before(self) -> None:
        """Rewrites nothing."""

    def after(self) -> None:
        """Looks at nothing."""


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    problem = small_conv()
    one = Rig(load(problem, problem.workloads[1], "cpu"), "cpu", 0, rotate=False)
    yield one
    one.close()


@pytest.fixture(scope="module")
def nothing() -> Iterator[int]:
    """A descriptor to send."""
    fd = os.open(os.devnull, os.O_RDONLY)
    yield fd
    os.close(fd)


def drive(session: Session, rig: Rig) -> None:
    """Goes all the way, as an evaluation does."""
    session.load(CANDIDATE, Arithmetic.FP32)
    session.construct(rig)
    session.set_weights(rig)
    session.run(rig, 2)
    session.timed(rig, 2, Idle())


def rejection(rig: Rig, plays: Sequence[Play], status: int | None = None, patience_s: float = 10.0) -> Rejected | None:
    """Returns how a session with that guest ended: None if it went all the way."""
    start, caught = time.monotonic(), None
    with talking(plays, status, patience_s) as session:
        try:
            drive(session, rig)
        except Rejected as rejected:
            caught = rejected
    assert time.monotonic() - start < SLACK_S
    storable = [build.model_dump(mode="json") for build in session.builds]
    json.dumps(storable, ensure_ascii=False, allow_nan=False).encode()
    if caught:
        assert caught.outcome is not Outcome.PASSED
        assert "".join(caught.reasons).replace("\n", "").replace("\t", "").isprintable()
    return caught


HONEST: list[Play] = [raw(frame(answer)) for answer in COMMANDS]


def instead(at: int, play: Play) -> list[Play]:
    """Returns an honest guest but for one command."""
    return [*HONEST[:at], play, *HONEST[at + 1 :]]


# ---- anything --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["\ud800", "\x00", "\x1b[2J"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
FIELDS = (
    "ok",
    "failure",
    "state",
    "prepare",
    "builds",
    "seconds",
    "queued",
    "dispatched",
    "samples",
    "kernels",
    "else",
)


@st.composite
def said(draw: st.DrawFn, at: int) -> tuple[bytes, bool]:
    """Something that a guest says to command `at`, and whether it goes on after it: with less than a whole message it
    would wait for the judge as the judge for it."""
    honest = frame(COMMANDS[at])
    kind = draw(st.sampled_from(["claim", "cut", "bytes", "frame", "json", "twice", "huge", "nothing"]))
    if kind == "claim":
        odd = draw(st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=3))
        return frame({**COMMANDS[at], **odd}), True
    if kind == "cut":
        return honest[: draw(st.integers(1, len(honest) - 1))], False
    if kind == "bytes":
        return draw(st.binary(max_size=60)), False
    if kind == "frame":
        return frame(draw(st.binary(max_size=60))), True
    if kind == "huge":
        return struct.pack(">I", draw(st.integers(ANSWER_BYTES + 1, 2**32 - 1))), True
    return {"json": frame(draw(JSON)), "twice": honest * 2, "nothing": b""}[kind], kind != "nothing"


@quick
@given(data=st.data(), at=st.integers(0, len(COMMANDS) - 1), status=st.sampled_from([None, 0, 7, -11, -9]))
def test_whatever_a_guest_says_ends_in_claims_or_in_a_rejection(
    rig: Rig, nothing: int, data: st.DataObject, at: int, status: int | None
) -> None:
    fds = [nothing] * data.draw(st.sampled_from([0, 0, 0, 1, 9, 200]))
    words, goes_on = data.draw(said(at))
    after = HONEST[at + 1 :] if goes_on else []
    caught = rejection(rig, [*HONEST[:at], raw(words, *fds), *after], status)
    if fds and words:
        assert caught
        assert caught.outcome is Outcome.CRASHED


def test_an_honest_guest_goes_all_the_way(rig: Rig) -> None:
    assert rejection(rig, HONEST) is None


@pytest.mark.parametrize("at", range(len(COMMANDS)))
def test_hanging_up_at_any_command(rig: Rig, at: int) -> None:
    caught = rejection(rig, HONEST[:at], 3)
    assert caught
    assert caught.outcome is Outcome.CRASHED
    assert "with status 3" in caught.reasons[0]


# ---- out of turn -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(len(COMMANDS) - 1))
def test_an_answer_before_its_command_is_none(rig: Rig, at: int) -> None:
    """Taken for one, it would stop the judge's clock as soon as it started."""
    caught = rejection(rig, instead(at, raw(frame(COMMANDS[at]) + frame(COMMANDS[at + 1]))))
    assert caught
    assert caught.outcome is Outcome.CRASHED
    assert "spoke before it was asked" in caught.reasons[0]


# ---- late ------------------------------------------------------------------------------------------------------------


def drip(sock: socket.socket) -> None:
    for byte in frame({"ok": True, "else": "x" * 2000}):
        sock.sendall(bytes([byte]))
        time.sleep(0.005)


def hold(sock: socket.socket) -> None:
    sock.recv(1)  # until the judge hangs up


@pytest.mark.parametrize("play", [drip, hold], ids=["one byte at a time", "never"])
def test_a_guest_that_takes_too_long(rig: Rig, play: Play) -> None:
    caught = rejection(rig, [*HONEST[:6], play], patience_s=0.3)
    assert caught
    assert caught.outcome is Outcome.TIMED_OUT
    assert "no answer to window" in caught.reasons[0]


# ---- large and deep --------------------------------------------------------------------------------------------------

ABSURD: dict[str, bytes] = {
    "too many operators": frame({"ok": True, "dispatched": {str(i): 1 for i in range(100_000)}}),
    "too many tensors": frame({"ok": True, "state": [0] * 500_000}),
    "many empty lists": frame(b'{"ok":true,"state":[' + b"[]," * 300_000 + b"[]]}"),
    "deep": frame(b'{"ok":true,"state":' + b"[" * 900 + b"]" * 900 + b"}"),
    "too deep": frame(b'{"ok":true,"state":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "many digits": frame(b'{"ok":true,"builds":[{"kernel":"k","registers":' + b"9" * 4000 + b"}]}"),
    "too many digits": frame(b'{"ok":true,"builds":[{"kernel":"k","registers":' + b"9" * 5000 + b"}]}"),
    "negative registers": frame({"ok": True, "builds": [{"kernel": "k", "registers": -1}]}),
    "a key twice": frame(b'{"ok":false,"ok":true}'),
    "neither fine nor not": frame({"ok": False}),
    "fine, but": frame({"ok": True, "failure": {"kind": "memory", "message": "no room"}}),
}


@pytest.mark.parametrize("answer", ABSURD.values(), ids=ABSURD)
def test_answers_that_make_no_sense(rig: Rig, answer: bytes) -> None:
    assert len(answer) < ANSWER_BYTES
    caught = rejection(rig, instead(5, raw(answer)))
    assert caught
    assert caught.outcome is Outcome.CRASHED


def test_what_a_failure_says_is_shown_without_what_a_terminal_obeys(rig: Rig) -> None:
    message = "ValueError: \x1b[2J\x00 \udcff\u202e\n\tat line 1"
    caught = rejection(rig, instead(5, raw(frame({"ok": False, "failure": {"kind": "crash", "message": message}}))))
    assert caught
    assert caught.reasons == ("ValueError: \\x1b[2J\\x00 \\udcff\\u202e\n\tat line 1",)


# ---- ended by a signal -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (-11, "ended by SIGSEGV"),
        (-35, "ended by signal 35"),  # real-time signals have no name
        (-64, "ended by SIGRTMAX"),
        (0, "ended by itself with status 0"),
        (None, "closed its socket"),
    ],
)
def test_every_end_has_a_name(rig: Rig, status: int | None, said: str) -> None:
    caught = rejection(rig, HONEST[:2], status)
    assert caught
    assert said in caught.reasons[0]


# ---- descriptors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 100])
def test_descriptors_are_no_answer(rig: Rig, nothing: int, count: int) -> None:
    caught = rejection(rig, instead(6, raw(frame(COMMANDS[6]), *[nothing] * count)))
    assert caught
    assert caught.outcome is Outcome.CRASHED
    assert "descriptors" in caught.reasons[0]
