"""The client against a real server: llama.cpp's, with a model too small for more than the protocol."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from asking import IDEAS, REQUEST, ask, until
from llama import serving, unpacked

from agentgen.errors import PromptRefused
from agentgen.models.client import OpenAIModel
from agentgen.models.journal import Journal
from agentgen.records.chat import Fault, Role
from agentgen.records.idea import Category
from agentgen.search.replies import Unusable, parse_ideas

pytestmark = pytest.mark.slow

CONTEXT = 256
GREETING = REQUEST.model_copy(update={"prompt": "Say hello in one word."})
COUNTING = REQUEST.model_copy(update={"prompt": "Count from 1 to 1000: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,"})
ASKED_FOR_IDEAS = IDEAS.model_copy(
    update={
        "prompt": 'How could a convolution be faster? Answer with JSON: {"ideas": [{"category": ..., "title": ...}]}'
    }
)
ONE_IDEA = {
    "type": "object",
    "properties": {"category": {"enum": [known.value for known in Category]}}
    | {name: {"type": "string", "minLength": 3, "maxLength": 30} for name in ("title", "reasoning")},
    "required": ["category", "title", "reasoning"],
}
SCHEMA = {
    "type": "object",
    "properties": {"ideas": {"type": "array", "items": ONE_IDEA, "minItems": 1, "maxItems": 2}},
    "required": ["ideas"],
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("llama")
    yield unpacked(folder)
    shutil.rmtree(folder)  # a quarter of a GB, which pytest would keep for three runs


@pytest.fixture(scope="module")
def url(wheels: Path) -> Iterator[str]:
    with serving(wheels, context=CONTEXT) as url:
        yield url


def model(url: str, journal: Path | None = None) -> OpenAIModel:
    always_the_same = dict.fromkeys(Role, 0.0)
    return OpenAIModel("smollm2", url, None, temperature=always_the_same, timeout_s=60, journal=journal)


def is_busy(url: str) -> bool:
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/slots", timeout=10) as response:
        slots: list[dict[str, Any]] = json.load(response)
    return any(slot["is_processing"] for slot in slots)


def test_a_chat_with_usage_and_without_a_price(url: str, tmp_path: Path) -> None:
    reply = ask(model(url, tmp_path), GREETING)
    assert reply.text.strip()
    assert (reply.model, reply.finish_reason, reply.fault) == ("smollm2", "stop", None)
    assert reply.input_tokens is not None
    assert reply.output_tokens is not None
    assert reply.cached_tokens is not None
    assert 0 <= reply.cached_tokens <= reply.input_tokens
    assert 10 < reply.input_tokens < 100
    assert (reply.reasoning, reply.reasoning_tokens, reply.cost_usd) == ("", None, None)
    (kept,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    ends = [line["end"] for line in lines if "end" in line]
    texts = [line["text"] for line in lines if "text" in line]
    assert lines[-len(ends) :] == [{"end": end} for end in ends]
    assert ends[-1]["used"]["output_tokens"] == reply.output_tokens
    assert "".join(texts) == reply.text
    assert 1 < len(texts) <= reply.output_tokens
    assert Journal(tmp_path).reply(GREETING.id) == reply


def test_a_context_that_is_full_cuts_the_reply(url: str) -> None:
    reply = ask(model(url), COUNTING)
    assert (reply.fault, reply.finish_reason) == (Fault.LENGTH, "length")
    assert "20" in reply.text
    assert reply.input_tokens is not None
    assert reply.output_tokens is not None
    assert reply.input_tokens + reply.output_tokens == pytest.approx(CONTEXT, abs=2)


def test_a_request_that_does_not_fit_is_refused(url: str) -> None:
    long = REQUEST.model_copy(update={"prompt": "Be fast. " * CONTEXT})
    with pytest.raises(PromptRefused, match=r"refused the request to smollm2 \(400.*context size"):
        ask(model(url), long)


def test_a_cancelled_request_leaves_the_server_idle(url: str, tmp_path: Path) -> None:
    asked = model(url, tmp_path)
    kept = tmp_path / f"{COUNTING.id}.jsonl"

    async def cancelled() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(asked.ask, COUNTING)
            await until(lambda: kept.exists() and kept.read_text().count("\n") >= 3)
            assert is_busy(url)
            group.cancel_scope.cancel()

    anyio.run(cancelled)
    begun = kept.read_text().count("\n")
    deadline_s = time.monotonic() + 2
    while is_busy(url):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert kept.read_text().count("\n") == begun < 100, "else it was not stopped but had ended"
    assert ask(asked, GREETING).fault is None


def test_ideas_in_free_words_are_ideas_or_a_reason(url: str) -> None:
    found = parse_ideas(ask(model(url), ASKED_FOR_IDEAS), "root", 2)
    assert found.reason if isinstance(found, Unusable) else found


def test_ideas_that_the_server_keeps_to_a_schema(wheels: Path) -> None:
    with serving(wheels, context=CONTEXT, schema=SCHEMA) as url:
        reply = ask(model(url), ASKED_FOR_IDEAS)
    found = parse_ideas(reply, "root", 2)
    assert isinstance(found, tuple), reply.text
    assert 1 <= len(found) <= 2
