from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgen.models.pieces import End, Piece, Used, storable, whole_reply
from agentgen.records.chat import ChatReply, Fault


def end(finish_reason: str | None = "stop", **used: int) -> End:
    return End(model="m", finish_reason=finish_reason, used=Used.model_validate(used), seconds=1.5)


def test_the_pieces_make_the_reply() -> None:
    pieces = [Piece(reasoning="Let me "), Piece("Do", "think."), Piece("ne.")]
    assert whole_reply(pieces, end(input_tokens=3, cached_tokens=2, output_tokens=5, reasoning_tokens=4)) == ChatReply(
        text="Done.",
        model="m",
        reasoning="Let me think.",
        input_tokens=3,
        cached_tokens=2,
        output_tokens=5,
        reasoning_tokens=4,
        seconds=1.5,
        finish_reason="stop",
    )


@pytest.mark.parametrize(
    ("piece", "finish_reason", "fault", "text"),
    [
        (Piece("Done."), "stop", None, "Done."),
        (Piece("Done."), "whatever", None, "Done."),
        (Piece("Do"), None, Fault.BROKEN, "Do"),
        (Piece("Do"), "abort", Fault.BROKEN, "Do"),
        (Piece("Do"), "length", Fault.LENGTH, "Do"),
        (Piece(reasoning="Hm."), "length", Fault.LENGTH, ""),
        (Piece("Do"), "content_filter", Fault.FILTERED, "Do"),
        (Piece(refusal="No."), "content_filter", Fault.FILTERED, "No."),
        (Piece(refusal="No."), "stop", Fault.REFUSED, "No."),
        (Piece("Done.", refusal="No."), "stop", None, "Done."),
        (Piece(reasoning="Hm."), "stop", Fault.EMPTY, ""),
        (Piece(), "tool_calls", Fault.EMPTY, ""),
    ],
)
def test_what_is_wrong_with_a_reply(piece: Piece, finish_reason: str | None, fault: Fault | None, text: str) -> None:
    reply = whole_reply([piece], end(finish_reason))
    assert (reply.fault, reply.text) == (fault, text)


def test_a_character_may_come_in_two_pieces() -> None:
    assert whole_reply([Piece("a\ud83d"), Piece("\ude00b\ud800")], end()).text == "a😀b\ufffd"


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_any_text_can_be_stored(text: str) -> None:
    storable(text).encode()
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert storable(text) == text
