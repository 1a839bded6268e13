"""The dialects: what each server streams, in the shapes of its documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asking import ask, model
from fault_server import DONE, FaultServer, chunk, event, speech, streamed, usage_event

from agentgen.models.chunks import read_chunk
from agentgen.models.pieces import Piece
from agentgen.records.chat import Fault

Serve = Callable[..., FaultServer]


def vllm_delta(finish: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
    choice |= {"stop_reason": None} if finish else {}
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


def test_vllm(serve: Serve) -> None:
    usage = {"prompt_tokens": 20, "total_tokens": 29, "completion_tokens": 9, "prompt_tokens_details": None}
    whole = (
        vllm_delta(role="assistant", content=""),
        vllm_delta(reasoning="Let me "),
        vllm_delta(reasoning="think.", reasoning_content="think."),  # both, while it was renamed
        vllm_delta(content="Done."),
        vllm_delta("stop", content=""),
        usage_event(usage),
        DONE,
    )
    reply = ask(model(serve(streamed(*whole))))
    assert (reply.text, reply.reasoning, reply.fault) == ("Done.", "Let me think.", None)
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens, reply.reasoning_tokens) == (20, None, 9, None)
    failed = event({"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}})
    server = serve(streamed(*whole[:4], failed, DONE))
    reply = ask(model(server))
    assert (reply.text, reply.fault, len(server.seen)) == ("Done.", Fault.BROKEN, 1)


def test_sglang(serve: Serve) -> None:
    def delta(finish: str | None = None, **said: object) -> bytes:
        nothing = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None}
        choice = {"index": 0, "delta": nothing | said, "logprobs": None, "finish_reason": finish, "matched_stop": None}
        return event({"id": "1", "object": "chat.completion.chunk", "choices": [choice], "usage": None})

    usage = {
        "prompt_tokens": 20,
        "total_tokens": 29,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 16},
        "reasoning_tokens": 4,
    }
    begun = (delta(role="assistant", content=""), delta(reasoning_content="Hm."), delta(content="Done."))
    reply = ask(model(serve(streamed(*begun, delta("stop"), usage_event(usage), DONE))))
    assert (reply.text, reply.reasoning, reply.fault) == ("Done.", "Hm.", None)
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens, reply.reasoning_tokens) == (20, 16, 9, 4)
    assert ask(model(serve(streamed(*begun, delta("abort"), DONE)))).fault is Fault.BROKEN


def test_ollama(serve: Serve) -> None:
    def delta(finish: str | None = None, **said: object) -> bytes:
        choice = {"index": 0, "delta": {"role": "assistant", "content": "", **said}, "finish_reason": finish}
        head = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "system_fingerprint": "fp_ollama"}
        return event({**head, "choices": [choice]})

    usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
    said = (delta(reasoning="Hm."), delta(content="Done."))
    reply = ask(model(serve(streamed(*said, delta("stop"), usage_event(usage), DONE))))
    assert (reply.text, reply.reasoning, reply.fault) == ("Done.", "Hm.", None)
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens, reply.cost_usd) == (20, None, 9, None)
    cut = ask(model(serve(streamed(*said, delta("length"), DONE))))  # the context of the Modelfile, and no usage
    assert (cut.fault, cut.output_tokens) == (Fault.LENGTH, None)


def test_openrouter(serve: Serve) -> None:
    usage: dict[str, Any] = {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "total_tokens": 29,
        "cost": 0.00025,
        "is_byok": False,
        "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
        "cost_details": {"upstream_inference_cost": None},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    waits = b": OPENROUTER PROCESSING\n\n"
    details = [{"type": "reasoning.text", "text": "Hm."}]
    last = chunk("", role="assistant", finish="stop", native_finish_reason="end_turn", usage=usage)  # with the end
    said = (waits, waits, chunk("", role="assistant", reasoning="Hm.", reasoning_details=details), chunk("Done."))
    reply = ask(model(serve(streamed(*said, last, DONE))))
    assert (reply.text, reply.reasoning, reply.fault, reply.cost_usd) == ("Done.", "Hm.", None, 0.00025)
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens, reply.reasoning_tokens) == (20, 16, 9, 4)
    lost = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
    failed = event({"error": {"code": "server_error", "message": "Provider disconnected"}, "choices": [lost]})
    server = serve(streamed(*said, failed))
    reply = ask(model(server))
    assert (reply.text, reply.fault, len(server.seen)) == ("Done.", Fault.BROKEN, 1)


def test_openai(serve: Serve) -> None:
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 4, "accepted_prediction_tokens": 0},
    }
    reply = ask(model(serve(streamed(*speech("Do", "ne.", usage=usage)))))
    assert (reply.text, reply.reasoning, reply.cached_tokens, reply.reasoning_tokens) == ("Done.", "", 0, 4)


@pytest.mark.parametrize(
    ("completion", "total", "details", "output"),
    [
        (9, 329, {"reasoning_tokens": 300}, 309),  # xAI: beside the completion
        (9, 329, None, 309),  # Gemini behind OpenAI's protocol: in the total alone
        (309, 329, {"reasoning_tokens": 300}, 309),  # OpenAI: within the completion
        (9, 9, None, 9),  # a total that is less than its parts
        (9, None, {"reasoning_tokens": 300}, 9),
    ],
)
def test_reasoning_beside_the_completion_is_output(
    serve: Serve, completion: int, total: int | None, details: object, output: int
) -> None:
    usage: dict[str, Any] = {"prompt_tokens": 20, "completion_tokens": completion, "total_tokens": total}
    usage["completion_tokens_details"] = details
    reply = ask(model(serve(streamed(*speech("Done.", usage=usage)))))
    assert (reply.input_tokens, reply.output_tokens) == (20, output)


def test_sums_may_come_with_every_event(serve: Serve) -> None:
    sums = [{"prompt_tokens": 20, "completion_tokens": count} for count in (1, 2)]
    server = serve(streamed(chunk("Do", usage=sums[0]), chunk("ne.", usage=sums[1]), chunk(finish="stop")))
    assert ask(model(server)).output_tokens == 2


@pytest.mark.parametrize("data", [None, 3, "x", [], [1], {}, {"object": "list", "data": []}, {"choices": None}])
def test_what_is_no_chunk(data: object) -> None:
    assert read_chunk(data) is None


@pytest.mark.parametrize(
    "choice",
    [None, 3, {}, {"delta": None}, {"delta": {"content": None}}, {"delta": {"content": 3}, "finish_reason": 3}],
)
def test_odd_chunks_say_nothing(choice: object) -> None:
    read = read_chunk({"choices": [choice], "usage": None})
    assert read is not None
    assert (read.piece, read.finish_reason, read.used) == (Piece(), None, None)


@pytest.mark.parametrize("value", [None, -1, 2.5, "7", True, float("nan"), [7]])
def test_odd_usage_is_not_known(value: object) -> None:
    odd = {"prompt_tokens": value, "completion_tokens": value, "prompt_tokens_details": value, "cost": value}
    read = read_chunk({"choices": [], "usage": odd})
    assert read is not None
    assert read.used is not None
    assert (read.used.input_tokens, read.used.output_tokens, read.used.cached_tokens) == (None, None, None)
    assert read.used.cost_usd == (2.5 if value == 2.5 else None)
