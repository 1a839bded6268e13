"""A server of `chat.completions` on the loopback interface that fails in every way that is asked of it, by script."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

Json = dict[str, Any]
USAGE: Json = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
DONE = b"data: [DONE]\n\n"


class Ending(Enum):
    """How an answer ends."""

    WHOLE = "whole"
    CLOSED = "closed"
    """The connection is closed, and its framing does not show that more was to come."""
    CUT = "cut"
    """The connection is closed, and its framing shows it."""
    RESET = "reset"
    SILENT = "silent"
    """The connection stays open, and nothing more comes."""
    NO_HEAD = "no head"
    """The connection is closed before anything was sent."""


@dataclass(frozen=True)
class Answer:
    """What the server does with one request."""

    status: int = 200
    body: object = None
    """Sent as JSON unless there are `parts`."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    delay_s: float = 0.0
    """Before anything is sent."""
    parts: tuple[bytes, ...] | None = None
    """The body as it goes over the wire."""
    pause_s: float = 0.0
    """After each part."""
    ending: Ending = Ending.WHOLE
    content_type: str = "application/json"


def streamed(*parts: bytes, ending: Ending = Ending.WHOLE, pause_s: float = 0.0) -> Answer:
    """Returns an answer of server-sent events."""
    return Answer(parts=parts, ending=ending, pause_s=pause_s, content_type="text/event-stream; charset=utf-8")


def event(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def chunk(content: str | None = None, *, finish: str | None = None, usage: Json | None = None, **more: object) -> bytes:
    """Returns an event with a delta, which has `more` too."""
    delta = {**({} if content is None else {"content": content}), **more}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    data = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return event(data if usage is None else {**data, "usage": usage})


def usage_event(usage: Json | None = None) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    return event({**head, "usage": usage or USAGE})


def speech(*said: str, finish: str | None = "stop", usage: Json | None = None) -> tuple[bytes, ...]:
    """Returns the events of a reply, as OpenAI sends them."""
    head, texts = chunk("", role="assistant", refusal=None), [chunk(text) for text in said]
    return (head, *texts, chunk(finish=finish), usage_event(usage), DONE)


def completion(
    content: str | None = "Done.", *, finish: str = "stop", usage: Json | None = None, **more: object
) -> Json:
    """Returns the body of a reply that is not streamed; its message has `more` too."""
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "finish_reason": finish, "message": message}
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    return {**head, "choices": [choice], "usage": usage or USAGE}


def error(message: str, **more: object) -> Json:
    return {"error": {"message": message, "type": "t", "param": None, "code": None, **more}}


OK = streamed(*speech("Do", "ne."))


class FaultServer:
    """Answers in the order of its script, the last one again and again."""

    def __init__(self, *script: Answer) -> None:
        self._script = list(script)
        self._lock = threading.Lock()
        self.seen: list[Json] = []
        """The requests."""
        self.paths: list[str] = []
        self.parts = 0
        """Parts of bodies that were sent."""
        self.left = threading.Event()
        """Set once a client hung up on an answer."""
        handler = type("Handler", (_Handler,), {"faults": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def next(self, path: str, request: Json) -> Answer:
        with self._lock:
            self.paths.append(path)
            self.seen.append(request)
            return self._script.pop(0) if len(self._script) > 1 else self._script[0]

    def count_part(self) -> None:
        with self._lock:
            self.parts += 1

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults: ClassVar[FaultServer]

    def do_POST(self) -> None:
        self.close_connection = True
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = self.faults.next(self.path, request)
        try:
            self._pause(answer.delay_s)
            if answer.ending is not Ending.NO_HEAD:
                self._send(answer)
        except ConnectionError:
            self.faults.left.set()

    def _send(self, answer: Answer) -> None:
        streams = "event-stream" in answer.content_type
        parts = answer.parts if answer.parts is not None else (json.dumps(answer.body).encode(),)
        chunked = streams and answer.ending is not Ending.CLOSED
        self.send_response(answer.status)
        for name, value in {"content-type": answer.content_type, "connection": "close", **answer.headers}.items():
            self.send_header(name, value)
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        elif answer.ending is not Ending.CLOSED:
            missing = 0 if answer.ending is Ending.WHOLE else 100
            self.send_header("content-length", str(sum(map(len, parts)) + missing))
        self.end_headers()
        for part in parts:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            self.faults.count_part()
            self._pause(answer.pause_s)
        self._end(answer.ending, chunked=chunked)

    def _end(self, ending: Ending, *, chunked: bool) -> None:
        if ending is Ending.WHOLE and chunked:
            self.wfile.write(b"0\r\n\r\n")
        elif ending is Ending.RESET:
            time.sleep(0.3)  # a reset overtakes what was sent and not yet read
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif ending is Ending.SILENT:
            self._pause(30)

    def _pause(self, seconds: float) -> None:
        """Raises ConnectionError when the client leaves meanwhile."""
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if readable and not self.connection.recv(1):
            raise ConnectionAbortedError

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""
