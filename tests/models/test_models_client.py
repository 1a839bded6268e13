"""The client against a server on the loopback interface that fails by script: what is sent, again or not, and told."""

from __future__ import annotations

import asyncio
import email.utils
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import anyio
import anyio.to_thread
import pytest
from asking import IDEAS, REQUEST, ask, model, until
from fault_server import OK, Answer, Ending, FaultServer, chunk, completion, error, event, speech, streamed
from genai_prices import Usage
from tenacity import RetryCallState, wait_fixed, wait_none

from agentgen.errors import ModelUnavailable, PromptRefused
from agentgen.models.chat import ChatModel
from agentgen.models.client import DEFAULT_TEMPERATURE, OPENAI_URL, OpenAIModel
from agentgen.models.retries import wait_s
from agentgen.records.chat import Role

Serve = Callable[..., FaultServer]


def test_one_exchange(serve: Serve) -> None:
    server = serve(OK)
    asked: ChatModel = model(server)
    reply = ask(asked)
    assert (reply.text, reply.model, reply.finish_reason) == ("Done.", "m", "stop")
    assert (reply.input_tokens, reply.output_tokens, reply.cost_usd) == (11, 5, None)
    assert reply.seconds is not None
    assert 0 < reply.seconds < 5
    assert server.paths == ["/v1/chat/completions"]
    assert server.seen == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "Be fast."}, {"role": "user", "content": "Go."}],
            "temperature": 0.2,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


def test_temperature_follows_the_role(serve: Serve) -> None:
    server = serve(OK)
    ask(model(server), IDEAS)
    ask(model(server, temperature={Role.WRITE: 0.0}))
    ask(model(server, temperature={}))
    assert [seen.get("temperature") for seen in server.seen] == [0.8, 0.0, None]
    assert DEFAULT_TEMPERATURE.keys() == set(Role)


@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms"])
def test_retry_after_is_obeyed(serve: Serve, name: str) -> None:
    value = "0.6" if name == "retry-after" else "600"
    server = serve(Answer(429, error("slow down"), {name: value}), OK)
    start = time.monotonic()
    assert ask(model(server)).text == "Done."
    assert 0.6 <= time.monotonic() - start < 3
    assert len(server.seen) == 2


def test_a_date_to_retry_after_is_obeyed(serve: Serve) -> None:
    when = email.utils.formatdate(time.time() + 2, usegmt=True)  # whole seconds: 1 to 2 s from now
    server = serve(Answer(503, error("restarting"), {"retry-after": when}), OK)
    start = time.monotonic()
    ask(model(server))
    assert time.monotonic() - start >= 0.9


def test_a_wait_beyond_the_deadline_is_not_begun(serve: Serve) -> None:
    server = serve(Answer(429, error("slow down"), {"retry-after": "900"}))
    start = time.monotonic()
    with pytest.raises(ModelUnavailable, match=r"limits the rate.*asks to wait 900 s.*slow down"):
        ask(model(server, deadline_s=5))
    assert time.monotonic() - start < 2
    assert len(server.seen) == 1


def test_the_deadline_ends_the_retries(serve: Serve) -> None:
    server = serve(Answer(500, error("broken"), {"retry-after": "0.8"}))  # the first may take a second
    with pytest.raises(ModelUnavailable, match=r"still fails after all retries \(500.*broken"):
        ask(model(server, deadline_s=2))
    assert 2 <= len(server.seen) <= 3


@pytest.mark.parametrize("fault", [Answer(500, error("x")), Answer(408, error("x")), Answer(409, error("x"))])
def test_passing_faults_are_retried(serve: Serve, fault: Answer) -> None:
    server = serve(fault, fault, OK)
    assert ask(model(server)).text == "Done."
    assert len(server.seen) == 3


def test_a_dropped_connection_is_retried(serve: Serve) -> None:
    server = serve(Answer(ending=Ending.NO_HEAD), OK)
    assert ask(model(server)).text == "Done."
    assert len(server.seen) == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_storm_of_refusals_is_sat_out(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    monkeypatch.setattr("agentgen.models.client.wait_s", wait_fixed(0.02))
    refused = Answer(status, error("slow down"))
    server = serve(*[refused] * 20, OK)
    assert ask(model(server)).text == "Done."
    assert len(server.seen) == 21
    (line,) = [record.getMessage() for record in caplog.records if record.name == "agentgen.models.retries"]
    assert re.match(r"127\.0\.0\.1 has failed 6 times \(.*slow down.*Ctrl-C", line)
    endless = serve(refused)
    with pytest.raises(ModelUnavailable, match="after all retries"):
        ask(model(endless, deadline_s=1))
    assert len(endless.seen) > 6


@pytest.mark.parametrize("paid", [Answer(408), Answer(504), Answer(524), Answer(ending=Ending.NO_HEAD)])
def test_what_may_be_paid_is_not_tried_until_the_deadline(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, paid: Answer
) -> None:
    monkeypatch.setattr("agentgen.models.client.wait_s", wait_none())
    refused = Answer(429, error("slow down"))
    server = serve(refused, refused, paid, refused, paid)
    with pytest.raises(ModelUnavailable):
        ask(model(server))
    assert len(server.seen) == 3 + 6


def test_silence_may_be_paid_each_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentgen.models.client.wait_s", wait_none())
    server = serve(Answer(delay_s=30))
    with pytest.raises(ModelUnavailable, match="sent nothing in time"):
        ask(model(server, timeout_s=0.3))
    assert len(server.seen) == 6


def test_a_server_that_is_restarted_is_waited_for_and_one_that_never_was_there_is_not(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait(state: RetryCallState) -> float:
        waits.append(wait_s(state))
        return 0.05

    monkeypatch.setattr("agentgen.models.client.wait_s", wait)
    gone = serve(OK)
    asked = model(gone)
    gone.close()
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        ask(asked)
    assert len(waits) == 6
    assert sum(waits[:5]) < 16, "seconds, as it would have been"
    restarted = serve(OK)
    asked = model(restarted, deadline_s=2)
    ask(asked)
    restarted.close()
    waits.clear()
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        ask(asked)
    assert len(waits) > 12


def test_a_slow_answer_is_retried_and_then_told(serve: Serve) -> None:
    server = serve(Answer(body=completion(), delay_s=0.5), streamed(ending=Ending.SILENT), OK)
    assert ask(model(server, timeout_s=0.2)).text == "Done."
    assert len(server.seen) == 3
    silent = serve(Answer(body=completion(), delay_s=0.5))
    with pytest.raises(ModelUnavailable, match="sent nothing in time"):
        ask(model(silent, timeout_s=0.1, deadline_s=0.1))


def test_nobody_listens() -> None:
    with pytest.raises(ModelUnavailable, match=r"cannot be reached .*AGENTGEN_BASE_URL"):
        ask(OpenAIModel("m", "http://127.0.0.1:9/v1", None, deadline_s=0.0))


QUOTA = error("You exceeded your current quota", code="insufficient_quota")


@pytest.mark.parametrize(
    "answer",
    [
        Answer(400, error("This model's maximum context length is 8192 tokens", code="context_length_exceeded")),
        Answer(400, error("the request exceeds the available context size (2048 tokens)")),
        Answer(400, error("The response was filtered", code="content_filter")),
        Answer(413, error("Payload too large")),
    ],
)
def test_a_prompt_that_is_refused_for_itself_is_told_from_a_server_that_gives_up(serve: Serve, answer: Answer) -> None:
    server = serve(answer)
    with pytest.raises(PromptRefused, match=r"refused the request to m") as caught:
        ask(model(server))
    assert "\n" not in str(caught.value)
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(401, error("bad key")), r"refused the key \(401.*bad key.*OPENAI_API_KEY"),
        (Answer(403, error("not yours")), r"refused the key \(403.*OPENAI_API_KEY"),
        (Answer(404, error("no such model")), r"no model 'm' \(404.*--model"),
        (Answer(429, QUOTA), r"quota or credit .* used up"),
        (Answer(402, error("no credits")), r"quota or credit .* used up"),
        (Answer(400, error("odd")), r"refused the request to m \(400.*odd"),
        (Answer(body=error("provider down")), r"refused the request to m .*provider down"),
        (Answer(body=error("no credits", code=402)), r"quota or credit .* used up"),
        (streamed(event(error("bad key", code=401))), r"refused the key \(401.*bad key"),
        (streamed(chunk("", role="assistant"), event({"object": "error", "message": "odd", "code": 400})), "odd"),
        (Answer(parts=(b"<html>hello</html>",), content_type="text/html"), r"no chat completion .*hello.*BASE_URL"),
        (Answer(parts=(b'{"id": "c1", "choi',)), "broken JSON"),
        (streamed(b'data: {"id": "c1", "choi\n\n'), "broken JSON in a stream"),
        (streamed(b'data: "\xff"\n\n'), "broken JSON in a stream"),
        (Answer(parts=(b"[" * 100_000,)), "broken JSON"),
        (streamed(b"data: " + b"[" * 100_000 + b"\n\n"), "broken JSON in a stream"),
        (Answer(parts=(b"[]",)), "no chat completion"),
        (Answer(body={"id": "c", "choices": [{"index": 0, "message": None}]}), "no chat completion"),
    ],
)
def test_lasting_faults_are_told_at_once(serve: Serve, answer: Answer, said: str) -> None:
    server = serve(answer)
    with pytest.raises(ModelUnavailable, match=said) as caught:
        ask(model(server))
    assert "\n" not in str(caught.value)
    assert len(server.seen) == 1


def test_a_refused_temperature_is_dropped_for_good(serve: Serve) -> None:
    server = serve(Answer(400, error("Unsupported value: 'temperature' does not support 0.2", param="temperature")), OK)
    asked = model(server)
    ask(asked)
    ask(asked, IDEAS)
    assert [seen.get("temperature") for seen in server.seen] == [0.2, None, None]
    assert all("stream_options" in seen for seen in server.seen)


def test_refused_stream_options_are_dropped_for_good(serve: Serve) -> None:
    refusals = [
        Answer(422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}),
        Answer(400, error("temperature must be 1")),
    ]
    server = serve(*refusals, streamed(chunk("Done."), chunk(finish="stop")))
    asked = model(server)
    assert ask(asked).output_tokens is None
    ask(asked)
    sent = [("stream_options" in seen, "temperature" in seen) for seen in server.seen]
    assert sent == [(True, True), (False, True), (False, False), (False, False)]


def test_a_server_that_cannot_do_without_temperature_either(serve: Serve) -> None:
    server = serve(Answer(400, error("temperature: whatever")))
    with pytest.raises(ModelUnavailable, match="refused the request"):
        ask(model(server))
    assert len(server.seen) == 2


def test_cost_as_the_server_tells(serve: Serve) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "cost": 0.125}
    assert ask(model(serve(streamed(*speech("Hi.", usage=usage))), "gpt-5")).cost_usd == 0.125


def test_a_price_list_is_for_its_own_server(serve: Serve) -> None:
    assert ask(model(serve(OK), "gpt-5")).cost_usd is None


@dataclass(frozen=True)
class Priced:
    total_price: float


def a_cent_each(tokens: Usage, **_: object) -> Priced:
    read = float(tokens.input_tokens or 0) - float(tokens.cache_read_tokens or 0)
    return Priced(0.01 * (read + float(tokens.output_tokens or 0)))


def test_the_price_of_the_list_minds_what_was_cached(monkeypatch: pytest.MonkeyPatch, serve: Serve) -> None:
    monkeypatch.setattr("agentgen.models.client.calc_price", a_cent_each)
    for cached, usd in ((0, 1.1), (60, 0.5), (900, 0.1)):  # a server that counts more cached than there were
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": cached}}
        reply = ask(model(serve(streamed(*speech("Hi.", usage=usage)))))
        assert (reply.cost_usd, reply.cached_tokens) == (pytest.approx(usd), cached)


def test_a_price_before_anything_is_sent_is_that_of_the_list() -> None:
    listed = OpenAIModel("gpt-5", None, "key")
    half, whole = listed.price_usd(1_000, 500), listed.price_usd(1_000, 1_000)
    assert half is not None
    assert whole is not None
    assert 0 < half < whole
    assert OpenAIModel("my-model", "http://127.0.0.1:9/v1", None).price_usd(1_000, 500) is None


@pytest.mark.parametrize(
    "slow",
    [streamed(*speech("Half ", *["done"] * 50), pause_s=0.2), Answer(delay_s=30), streamed(ending=Ending.SILENT)],
)
def test_a_cancelled_request_hangs_up_at_once(serve: Serve, slow: Answer) -> None:
    server = serve(slow, OK)
    asked = model(server)

    async def cancelled() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(asked.ask, REQUEST)
            await until(lambda: len(server.seen) == 1)
            await anyio.sleep(0.1)
            group.cancel_scope.cancel()
        start_s = time.monotonic()
        assert await anyio.to_thread.run_sync(server.left.wait, 10)
        return time.monotonic() - start_s

    assert anyio.run(cancelled) < 5  # the answer takes longer
    assert len(server.seen) == 1
    assert ask(asked).text == "Done."


def test_a_cancelled_task_hangs_up_too(serve: Serve) -> None:
    server = serve(streamed(chunk("Half"), ending=Ending.SILENT))

    async def cancelled() -> None:
        task = asyncio.create_task(model(server).ask(REQUEST))
        await until(lambda: server.parts == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(server.left.wait, 10)

    asyncio.run(cancelled())
    assert len(server.seen) == 1


def test_waiting_to_retry_can_be_cancelled(serve: Serve) -> None:
    server = serve(Answer(429, error("slow down"), {"retry-after": "20"}))

    async def cancelled() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(model(server).ask, REQUEST)
            await until(lambda: len(server.seen) == 1)
            await anyio.sleep(0.1)
            group.cancel_scope.cancel()

    start_s = time.monotonic()
    anyio.run(cancelled)
    assert time.monotonic() - start_s < 10


def test_many_at_once_and_in_one_event_loop_after_another(serve: Serve) -> None:
    server = serve(streamed(*speech("Do", "ne."), pause_s=0.1))
    asked = model(server)

    async def many() -> list[str]:
        return [reply.text for reply in await asyncio.gather(*(asked.ask(REQUEST) for _ in range(16)))]

    start_s = time.monotonic()
    for _ in range(2):
        assert asyncio.run(many()) == ["Done."] * 16
    assert time.monotonic() - start_s < 10  # one after another they would take 19 s
    assert len(server.seen) == 32


def test_openai_wants_a_key() -> None:
    with pytest.raises(ModelUnavailable, match="OPENAI_API_KEY"):
        OpenAIModel("m", None, None)
    assert OpenAIModel("m", None, "key").name == "m"
    assert OPENAI_URL.startswith("https://")
