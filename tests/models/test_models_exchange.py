"""The files of an exchange: what is written is what is read, whatever the texts hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_requests import parse_request, read_request

from agentgen.errors import BadInput
from agentgen.models.exchange import (
    format_request,
    parse_reply,
    read_reply,
    reply_path,
    request_path,
    write_request,
)
from agentgen.records.chat import ChatReply, ChatRequest, Role

REQUEST = ChatRequest(
    role=Role.WRITE,
    problem="conv2d",
    target="triton",
    parent="0123456789abcdef",
    system="You write kernels.\n",
    prompt="Write it:\n```python\npass\n```\n",
)
awkward = st.lists(
    st.one_of(
        st.text(),
        st.sampled_from(["---", "\n", "\r\n", "# System", "\n# System\n\n", "\n\n# Prompt\n\n", "```", "\x85"]),
    )
).map("".join)


@settings(max_examples=60, deadline=None)
@given(system=awkward, prompt=awkward, problem=st.text(), target=st.text(), attempt=st.integers(0, 9))
def test_a_request_survives_its_file(system: str, prompt: str, problem: str, target: str, attempt: int) -> None:
    request = ChatRequest(
        role=Role.IDEAS,
        problem=problem,
        target=target,
        parent="1234567890123456",  # all digits: must not come back as a number
        system=system,
        prompt=prompt,
        attempt=attempt,
    )
    assert parse_request(format_request(request)) == request


def test_the_file_tells_a_person_everything(tmp_path: Path) -> None:
    path = write_request(tmp_path / "made", REQUEST)
    assert path == request_path(tmp_path / "made", REQUEST)
    assert path.name == f"write-triton-{REQUEST.id}.request.md"
    text = path.read_text()
    how = text.index(f"`write-triton-{REQUEST.id}.reply.md`")
    assert text.startswith("---\nrole: write\nproblem: conv2d\ntarget: triton\n")
    assert how < text.index("\n# System\n\nYou write kernels.\n") < text.index("\n# Prompt\n\nWrite it:")
    assert read_request(path) == REQUEST
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_target_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    request = REQUEST.model_copy(update={"target": "../../up"})
    assert request_path(tmp_path, request).parent == tmp_path
    assert read_request(write_request(tmp_path, request)) == request


def test_a_request_is_written_once(tmp_path: Path) -> None:
    first = write_request(tmp_path, REQUEST)
    write_request(tmp_path, REQUEST.model_copy(update={"prompt": "Other words."}))
    assert read_request(first) == REQUEST


def test_a_reply_without_front_matter_is_all_text() -> None:
    text = "Here:\r\n---\nmodel: not me\n---\n"
    assert parse_reply(text, "it", "mailbox") == ChatReply(text=text, model="mailbox")


@pytest.mark.parametrize(
    "text",
    [
        "---\nA rule above, a rule below.\n---\nText.",
        "---\nkey: value\n---\nText.",
        "---\nmodel: x\nother: y\n---\nText.",
        "---\nmodel: x\nnever closed",
        "---\n: [\n---\nText.",
        "---\n---\nText.",
        "\n---\nmodel: x\n---\nText.",
    ],
)
def test_what_only_looks_like_front_matter_is_text(text: str) -> None:
    assert parse_reply(text, "it", "mailbox") == ChatReply(text=text, model="mailbox")


def test_front_matter_of_a_reply() -> None:
    text = "---\r\nmodel: somebody\r\ninput_tokens: 12\r\noutput_tokens: 3\r\ncost_usd: 0.5\r\n---\r\nText.\r\n---\r\n"
    assert parse_reply(text, "it", "mailbox") == ChatReply(
        text="Text.\r\n---\r\n", model="somebody", input_tokens=12, output_tokens=3, cost_usd=0.5
    )


def test_an_impossible_value_in_front_matter_is_named() -> None:
    with pytest.raises(BadInput, match=r"it: input_tokens: .*integer"):
        parse_reply("---\ninput_tokens: many\n---\nText.", "it", "mailbox")


def test_reading_a_reply_forgives_the_editor(tmp_path: Path) -> None:
    path = reply_path(tmp_path, REQUEST)
    assert read_reply(path, "mailbox") is None
    path.write_bytes(b" \n")
    assert read_reply(path, "mailbox") is None
    path.write_bytes(b"\xef\xbb\xbf---\nmodel: me\n---\ncaf\xe9")
    assert read_reply(path, "mailbox") == ChatReply(text="caf�", model="me")
