"""Streams that end where they should not: what came is returned with its fault, and what nobody paid is asked again."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from asking import REQUEST, ask, model
from fault_server import DONE, OK, Answer, Ending, FaultServer, chunk, completion, error, event, speech, streamed
from fault_server import usage_event as usage
from tenacity import wait_none

from agentgen.errors import ModelUnavailable
from agentgen.records.chat import Fault

Serve = Callable[..., FaultServer]

HEAD = chunk("", role="assistant")
SPEECH = (HEAD, b": keep-alive\n\n", chunk("Half a "), chunk("kernel."), chunk(finish="stop"), usage(), DONE)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgen.models.client.wait_s", wait_none())


CUTS = [(Ending.CLOSED, 0.0), (Ending.CLOSED, 0.5), (Ending.CUT, 0.0), (Ending.CUT, 0.5), (Ending.RESET, 0.5)]


@pytest.mark.parametrize(("ending", "share"), CUTS)
@pytest.mark.parametrize("whole", range(len(SPEECH)))
def test_a_stream_may_be_cut_anywhere(serve: Serve, ending: Ending, share: float, whole: int) -> None:
    torn = SPEECH[whole][: int(len(SPEECH[whole]) * share)]
    server = serve(streamed(*SPEECH[:whole], *([torn] if torn else []), ending=ending), OK)
    reply = ask(model(server))
    said = "Half a kernel."[: 0 if whole <= 2 else 7 if whole == 3 else 14]
    if not said:
        assert (reply.text, reply.fault, len(server.seen)) == ("Done.", None, 2)
        return
    assert (reply.text, len(server.seen)) == (said, 1)
    assert (reply.fault, reply.finish_reason) == ((None, "stop") if whole >= 5 else (Fault.BROKEN, None))
    assert reply.output_tokens == (5 if whole >= 6 else None)


def test_silence_within_a_reply_breaks_it(serve: Serve) -> None:
    server = serve(streamed(HEAD, chunk("Half"), ending=Ending.SILENT), OK)
    reply = ask(model(server, timeout_s=1))
    assert (reply.text, reply.fault, len(server.seen)) == ("Half", Fault.BROKEN, 1)


def test_a_slow_stream_outlives_the_timeout(serve: Serve) -> None:
    server = serve(streamed(*speech("Slow ", "and ", "steady."), pause_s=0.3))
    assert ask(model(server, timeout_s=1.2)).text == "Slow and steady."
    assert len(server.seen) == 1


def test_a_server_that_stays_after_the_end_is_not_waited_for(serve: Serve) -> None:
    server = serve(streamed(*SPEECH, ending=Ending.SILENT))
    reply = ask(model(server, timeout_s=10))
    assert (reply.text, reply.fault, reply.output_tokens) == ("Half a kernel.", None, 5)
    assert reply.seconds is not None
    assert reply.seconds < 5


@pytest.mark.parametrize(
    "rest", [event(error("provider down", code=502)), b"data: {not json\n\n", b"data: \xff\xfe\n\n", b"event: x\n\n"]
)
def test_nonsense_within_a_reply_breaks_it(serve: Serve, rest: bytes) -> None:
    server = serve(streamed(chunk("Half"), rest), OK)
    reply = ask(model(server))
    assert (reply.text, reply.fault, len(server.seen)) == ("Half", Fault.BROKEN, 1)


def test_reasoning_alone_was_paid_as_well(serve: Serve) -> None:
    server = serve(streamed(chunk(reasoning="Let me"), ending=Ending.CLOSED), OK)
    reply = ask(model(server))
    assert (reply.text, reply.reasoning, reply.fault, len(server.seen)) == ("", "Let me", Fault.BROKEN, 1)


@pytest.mark.parametrize(
    "first",
    [
        event(error("overloaded", code=503)),
        event(error("slow down", code=429)),
        event(error("we failed", type="server_error")),
        event(error("provider", code="server_error")),
        event({"object": "error", "message": "engine", "code": 500}),
        DONE,
        b": keep-alive\n\n",
    ],
)
def test_an_error_before_a_reply_is_retried(serve: Serve, first: bytes) -> None:
    server = serve(streamed(first), OK)
    assert ask(model(server)).text == "Done."
    assert len(server.seen) == 2


def test_streams_that_never_begin_are_told(serve: Serve) -> None:
    server = serve(streamed(HEAD, ending=Ending.CLOSED))
    with pytest.raises(ModelUnavailable, match="broke off before m had said anything, in all attempts"):
        ask(model(server))
    assert len(server.seen) == 6


FAULTS = [
    (speech("Half a ker", finish="length"), Fault.LENGTH, "Half a ker"),
    ((chunk(reasoning="Hm."), chunk(finish="length"), usage()), Fault.LENGTH, ""),
    (speech(finish="content_filter"), Fault.FILTERED, ""),
    (speech("So far ", finish="content_filter"), Fault.FILTERED, "So far "),
    ((chunk(refusal="I may "), chunk(refusal="not."), chunk(finish="stop"), usage()), Fault.REFUSED, "I may not."),
    (speech(), Fault.EMPTY, ""),
    (speech(" \n"), Fault.EMPTY, ""),
    ((chunk("Half"), chunk("", finish="error"), usage()), Fault.BROKEN, "Half"),
]


@pytest.mark.parametrize(("events", "fault", "text"), FAULTS)
def test_faults_are_values_and_cost(
    serve: Serve, caplog: pytest.LogCaptureFixture, events: tuple[bytes, ...], fault: Fault, text: str
) -> None:
    server = serve(streamed(*events), OK)
    with caplog.at_level(logging.WARNING):
        reply = ask(model(server))
    assert (reply.fault, reply.text.strip(), reply.output_tokens) == (fault, text.strip(), 5)
    assert len(server.seen) == 1
    (line,) = [record.getMessage() for record in caplog.records if record.name == "agentgen.models.client"]
    assert line.startswith(f"the reply of m to write-cuda-{REQUEST.id} is {fault} after 5 tokens")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("body", "fault", "text"),
    [
        (completion("Done."), None, "Done."),
        (completion("Half a ker", finish="length"), Fault.LENGTH, "Half a ker"),
        (completion(None, finish="content_filter"), Fault.FILTERED, ""),
        (completion(None, refusal="I may not."), Fault.REFUSED, "I may not."),
        (completion(""), Fault.EMPTY, ""),
        (completion(None), Fault.EMPTY, ""),
    ],
)
def test_a_server_that_does_not_stream(serve: Serve, body: object, fault: Fault | None, text: str) -> None:
    server = serve(Answer(body=body))
    reply = ask(model(server))
    assert (reply.fault, reply.text, reply.input_tokens, reply.output_tokens) == (fault, text, 11, 5)
    assert len(server.seen) == 1


@pytest.mark.parametrize("ending", [Ending.CUT, Ending.RESET, Ending.SILENT])
@pytest.mark.parametrize(("begun", "requests"), [(b'{"id": "c1", "choices": [', 1), (b"\n\n ", 2), (b"", 2)])
def test_a_whole_completion_may_be_cut_too(serve: Serve, ending: Ending, begun: bytes, requests: int) -> None:
    server = serve(Answer(parts=(begun,), ending=ending), OK)
    reply = ask(model(server, timeout_s=1))
    assert len(server.seen) == requests
    assert (reply.text, reply.fault) == (("", Fault.BROKEN) if requests == 1 else ("Done.", None))
