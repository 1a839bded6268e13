"""What arrives of a reply, piece by piece, and the reply that the pieces make. Knows of no server and no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentgen.records.base import Record
from agentgen.records.chat import ChatReply, Fault

_FAULT_BY_FINISH: Final[Mapping[str, Fault]] = {
    "length": Fault.LENGTH,
    "content_filter": Fault.FILTERED,
    "error": Fault.BROKEN,  # OpenRouter, vLLM
    "abort": Fault.BROKEN,  # SGLang, vLLM
}


@dataclass(frozen=True)
class Piece:
    """What one event of a stream adds, as it came: it may hold half a character."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.refusal)


class Used(Record):
    """What a server says that a reply took; None: it does not say."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None


class End(Record):
    """What is known of a reply once no more pieces come."""

    model: str
    finish_reason: str | None
    """In the server's words; None: it broke off."""
    used: Used
    seconds: float


def whole_reply(pieces: Sequence[Piece], end: End) -> ChatReply:
    """Returns the reply, which may have a fault. The words of a refusal are the text where there is no other."""
    text = storable("".join(piece.text for piece in pieces))
    refusal = storable("".join(piece.refusal for piece in pieces))
    return ChatReply(
        text=text if text.strip() else refusal,
        model=end.model,
        reasoning=storable("".join(piece.reasoning for piece in pieces)),
        **end.used.model_dump(),
        seconds=end.seconds,
        finish_reason=end.finish_reason,
        fault=_fault(text, refusal, end.finish_reason),
    )


def storable(text: str) -> str:
    """Returns `text` without lone surrogates, which JSON can carry and neither a file nor a database can. Two that make
    a character together, from the ends of two pieces, become it."""
    return text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")


def _fault(text: str, refusal: str, finish_reason: str | None) -> Fault | None:
    if finish_reason is None:
        return Fault.BROKEN
    if finish_reason in _FAULT_BY_FINISH:
        return _FAULT_BY_FINISH[finish_reason]
    if text.strip():
        return None
    return Fault.REFUSED if refusal.strip() else Fault.EMPTY
