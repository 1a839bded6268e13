"""The client against a server on the loopback interface that fails by script."""

from __future__ import annotations

import email.utils
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agentgen.errors import ModelUnavailable
from agentgen.models.chat import ChatModel
from agentgen.models.client import OPENAI_URL, OpenAIModel
from agentgen.records.chat import ChatRequest, Role

REQUEST = ChatRequest(
    role=Role.WRITE, problem="conv2d", target="cuda", parent="ab" * 8, system="Be fast.", prompt="Go."
)
IDEAS = REQUEST.model_copy(update={"role": Role.IDEAS})


@dataclass(frozen=True)
class Answer:
    """What the server does with one request."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    delay_s: float = 0.0
    drop: bool = False
    raw: bytes | None = None
    content_type: str = "application/json"


@dataclass
class Server:
    """A scripted server: answers in order, the last one again and again."""

    script: list[Answer]
    seen: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    paths: list[str] = field(default_factory=list[str])
    url: str = ""


def completion(
    content: str | None = "Done.", *, finish: str = "stop", usage: dict[str, Any] | None = None, **message: object
) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": usage or {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }


def error(message: str, **more: object) -> dict[str, Any]:
    return {"error": {"message": message, "type": "t", "param": None, "code": None, **more}}


OK = Answer(body=completion())
Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[ThreadingHTTPServer] = []

    def start(*script: Answer) -> Server:
        server = Server(list(script))

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                server.seen.append(json.loads(body))
                server.paths.append(self.path)
                answer = server.script.pop(0) if len(server.script) > 1 else server.script[0]
                time.sleep(answer.delay_s)
                if answer.drop:
                    self.close_connection = True
                    return
                data = answer.raw if answer.raw is not None else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in {"content-type": answer.content_type, **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Keeps the test's output clean."""

        httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        httpd.daemon_threads = True
        running.append(httpd)
        threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
        server.url = f"http://127.0.0.1:{httpd.server_address[1]}/v1"
        return server

    yield start
    for httpd in running:
        httpd.shutdown()
        httpd.server_close()


def model(server: Server, name: str = "m", **settings: Any) -> OpenAIModel:
    return OpenAIModel(name, server.url, "key", **settings)


def test_one_exchange(serve: Serve) -> None:
    server = serve(OK)
    asked: ChatModel = model(server)
    reply = asked.ask(REQUEST)
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
        }
    ]


def test_temperature_follows_the_role(serve: Serve) -> None:
    server = serve(OK)
    model(server).ask(IDEAS)
    model(server, temperature={Role.WRITE: 0.0}).ask(REQUEST)
    model(server, temperature={}).ask(REQUEST)
    assert [seen.get("temperature") for seen in server.seen] == [0.8, 0.0, None]


@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms"])
def test_retry_after_is_obeyed(serve: Serve, name: str) -> None:
    value = "0.6" if name == "retry-after" else "600"
    server = serve(Answer(429, error("slow down"), {name: value}), OK)
    start = time.monotonic()
    assert model(server).ask(REQUEST).text == "Done."
    assert 0.6 <= time.monotonic() - start < 3
    assert len(server.seen) == 2


def test_a_date_to_retry_after_is_obeyed(serve: Serve) -> None:
    when = email.utils.formatdate(time.time() + 2, usegmt=True)  # whole seconds: 1 to 2 s from now
    server = serve(Answer(503, error("restarting"), {"retry-after": when}), OK)
    start = time.monotonic()
    model(server).ask(REQUEST)
    assert time.monotonic() - start >= 0.9


def test_a_wait_beyond_the_deadline_is_not_begun(serve: Serve) -> None:
    server = serve(Answer(429, error("slow down"), {"retry-after": "900"}))
    start = time.monotonic()
    with pytest.raises(ModelUnavailable, match=r"limits the rate.*asks to wait 900 s.*slow down"):
        model(server, deadline_s=5).ask(REQUEST)
    assert time.monotonic() - start < 2
    assert len(server.seen) == 1


def test_the_deadline_ends_the_retries(serve: Serve) -> None:
    server = serve(Answer(500, error("broken"), {"retry-after": "0.2"}))
    with pytest.raises(ModelUnavailable, match=r"still fails after all retries \(500.*broken"):
        model(server, deadline_s=0.5).ask(REQUEST)
    assert 2 <= len(server.seen) <= 3


@pytest.mark.parametrize("fault", [Answer(500, error("x")), Answer(408, error("x")), Answer(409, error("x"))])
def test_passing_faults_are_retried(serve: Serve, fault: Answer) -> None:
    server = serve(fault, fault, OK)
    assert model(server).ask(REQUEST).text == "Done."
    assert len(server.seen) == 3


def test_a_dropped_connection_is_retried(serve: Serve) -> None:
    server = serve(Answer(drop=True), OK)
    assert model(server).ask(REQUEST).text == "Done."
    assert len(server.seen) == 2


def test_a_slow_answer_is_retried_and_then_told(serve: Serve) -> None:
    server = serve(Answer(body=completion(), delay_s=0.5), OK)
    assert model(server, timeout_s=0.2).ask(REQUEST).text == "Done."
    silent = serve(Answer(body=completion(), delay_s=0.5))
    with pytest.raises(ModelUnavailable, match="sent nothing in time"):
        model(silent, timeout_s=0.1, deadline_s=0.1).ask(REQUEST)


def test_nobody_listens() -> None:
    with pytest.raises(ModelUnavailable, match=r"cannot be reached .*AGENTGEN_BASE_URL"):
        OpenAIModel("m", "http://127.0.0.1:9/v1", None, deadline_s=0.0).ask(REQUEST)


QUOTA = error("You exceeded your current quota", code="insufficient_quota")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(401, error("bad key")), r"refused the key \(401.*bad key.*OPENAI_API_KEY"),
        (Answer(403, error("not yours")), r"refused the key \(403.*OPENAI_API_KEY"),
        (Answer(404, error("no such model")), r"no model 'm' \(404.*--model"),
        (Answer(429, QUOTA), r"quota or credit .* used up"),
        (Answer(402, error("no credits")), r"quota or credit .* used up"),
        (Answer(400, error("context too long")), r"refused the request to m \(400.*context too long"),
        (Answer(body=completion("")), "is empty after 5 tokens"),
        (Answer(body=completion(None)), "is empty after 5 tokens"),
        (Answer(body=completion("Half a ker", finish="length")), "truncated after 5 tokens"),
        (Answer(body=completion(None, finish="content_filter")), "content filter"),
        (Answer(body=completion(None, refusal="I may not.")), "refused to answer: I may not."),
        (Answer(body=error("provider down")), r"no chat completion .*provider down"),
        (Answer(raw=b"<html>hello</html>", content_type="text/html"), r"no chat completion .*hello.*AGENTGEN_BASE_URL"),
        (Answer(raw=b'{"id": "c1", "choi'), "broken JSON"),
        (Answer(raw=b"[]"), "no chat completion"),
        (Answer(body={"id": "c", "choices": [{"index": 0, "message": None}]}), "no chat completion"),
    ],
)
def test_lasting_faults_are_told_at_once(serve: Serve, answer: Answer, said: str) -> None:
    server = serve(answer)
    with pytest.raises(ModelUnavailable, match=said) as caught:
        model(server).ask(REQUEST)
    assert "\n" not in str(caught.value)
    assert len(server.seen) == 1


def test_a_refused_temperature_is_dropped_for_good(serve: Serve) -> None:
    server = serve(Answer(400, error("Unsupported value: 'temperature' does not support 0.2", param="temperature")), OK)
    asked = model(server)
    asked.ask(REQUEST)
    asked.ask(IDEAS)
    assert [seen.get("temperature") for seen in server.seen] == [0.2, None, None]


def test_a_server_that_cannot_do_without_temperature_either(serve: Serve) -> None:
    server = serve(Answer(400, error("temperature: whatever")))
    with pytest.raises(ModelUnavailable, match="refused the request"):
        model(server).ask(REQUEST)
    assert len(server.seen) == 2


def test_cost_as_the_server_tells(serve: Serve) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "cost": 0.125}
    assert model(serve(Answer(body=completion(usage=usage))), "gpt-5").ask(REQUEST).cost_usd == 0.125


def test_a_price_list_is_for_its_own_server(serve: Serve) -> None:
    assert model(serve(OK), "gpt-5").ask(REQUEST).cost_usd is None


def test_a_price_before_anything_is_sent_is_that_of_the_list() -> None:
    listed = OpenAIModel("gpt-5", None, "key")
    half, whole = listed.price_usd(1_000, 500), listed.price_usd(1_000, 1_000)
    assert half is not None
    assert whole is not None
    assert 0 < half < whole
    assert OpenAIModel("my-model", "http://127.0.0.1:9/v1", None).price_usd(1_000, 500) is None


@pytest.mark.parametrize(
    "body", [completion("Done.", reasoning="Let me think."), completion("Done.", reasoning_content="Let me think.")]
)
def test_reasoning_is_kept(serve: Serve, body: object) -> None:
    reply = model(serve(Answer(body=body))).ask(REQUEST)
    assert (reply.text, reply.reasoning) == ("Done.", "Let me think.")


def test_lone_surrogates_do_not_reach_the_ledger(serve: Serve) -> None:
    reply = model(serve(Answer(raw=json.dumps(completion("a\ud800b")).encode()))).ask(REQUEST)
    assert reply.text == "a?b"
    reply.text.encode()


def test_openai_wants_a_key() -> None:
    with pytest.raises(ModelUnavailable, match="OPENAI_API_KEY"):
        OpenAIModel("m", None, None)
    assert OpenAIModel("m", None, "key").name == "m"
    assert OPENAI_URL.startswith("https://")
