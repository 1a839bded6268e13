"""What an event of a stream says, and what a whole completion says, in the dialects of the servers.

A stream's `delta` and a completion's `message` have the same fields. Where servers differ:

- Reasoning is `reasoning` (vLLM, OpenRouter, Ollama) or `reasoning_content` (SGLang, llama.cpp), or both, then equal.
- Usage comes in a last event without choices, with the end, or never; `reasoning_tokens` beside the other counts
  (SGLang) or in their details; `cost` only from OpenRouter.
- Reasoning is part of `completion_tokens`, or comes on top of them (xAI, Gemini behind OpenAI's protocol). It is paid
  as output either way, and `total_tokens` has it.
- Any field may be null instead of missing.

Not covered: tools (none are offered), more choices than one (not asked for), content in parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from agentgen.models.pieces import Piece, Used, storable


@dataclass(frozen=True)
class Chunk:
    """What one event says."""

    piece: Piece
    finish_reason: str | None = None
    """None: more is to come."""
    used: Used | None = None
    """The sums so far."""


def read_chunk(data: object) -> Chunk | None:
    """Returns what an event or a completion says; None where it is neither."""
    event = _mapping(data)
    choices = event.get("choices")
    if not isinstance(choices, list) and "usage" not in event:
        return None
    first = _mapping(cast(list[object], choices)[0]) if choices else {}
    said = _mapping(first.get("delta") or first.get("message"))
    finish = first.get("finish_reason")
    usage = event.get("usage")
    return Chunk(
        piece=Piece(_text(said.get("content")), _reasoning(said), _text(said.get("refusal"))),
        finish_reason=storable(finish) if isinstance(finish, str) and finish else None,
        used=_used(_mapping(usage)) if usage else None,
    )


def error_of(data: object) -> object | None:
    """Returns what a server says went wrong, under status 200; None: nothing.

    Events with a key `error` do not get here, the SDK raises for them.
    """
    body = _mapping(data)
    return body if body.get("object") == "error" else body.get("error") or None


def _reasoning(said: Mapping[str, Any]) -> str:
    one, other = _text(said.get("reasoning")), _text(said.get("reasoning_content"))
    return one if one == other else one + other


def _used(usage: Mapping[str, Any]) -> Used:
    of_input = _mapping(usage.get("prompt_tokens_details"))
    of_output = _mapping(usage.get("completion_tokens_details"))
    reasoning = _count(of_output.get("reasoning_tokens"))
    prompt = _count(usage.get("prompt_tokens"))
    return Used(
        input_tokens=prompt,
        cached_tokens=_count(of_input.get("cached_tokens")),
        output_tokens=_output_tokens(prompt, _count(usage.get("completion_tokens")), _count(usage.get("total_tokens"))),
        reasoning_tokens=_count(usage.get("reasoning_tokens")) if reasoning is None else reasoning,
        cost_usd=_usd(usage.get("cost")),
    )


def _output_tokens(prompt: int | None, completion: int | None, total: int | None) -> int | None:
    """Returns all that was not read, with the reasoning that some servers do not count as completion."""
    if prompt is None or completion is None or total is None:
        return completion
    return max(completion, total - prompt)


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _usd(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)
