"""Replaying a folder that a mailbox left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentgen.errors import BadInput, ModelUnavailable, NothingRecorded
from agentgen.models.chat import ChatModel
from agentgen.models.exchange import reply_path, write_request
from agentgen.models.recorded import RecordedModel
from agentgen.records.chat import ChatRequest, Role

REQUEST = ChatRequest(role=Role.WRITE, problem="conv2d", target="cuda", parent="ab" * 8, system="s", prompt="p")
PROVENANCE = "model: a model, through the mailbox\ndate: 2026-11-21\nruns: [r1]\nnote: As they came.\n"


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    (tmp_path / "provenance.yaml").write_text(PROVENANCE)
    write_request(tmp_path, REQUEST)
    reply_path(tmp_path, REQUEST).write_text("Here you are.")
    return tmp_path


def test_finds_the_reply_whatever_the_words(recording: Path) -> None:
    model: ChatModel = RecordedModel(recording)
    reply = model.ask(REQUEST.model_copy(update={"prompt": "Other words, other times."}))
    assert reply.text == "Here you are."
    assert reply.model == model.name == "recorded (a model, through the mailbox, 2026-11-21)"
    assert reply.cost_usd == 0


def test_the_author_of_one_reply_is_kept(recording: Path) -> None:
    reply_path(recording, REQUEST).write_text("---\nmodel: other\ncost_usd: 3\noutput_tokens: 7\n---\nHere.")
    reply = RecordedModel(recording).ask(REQUEST)
    assert (reply.model, reply.cost_usd, reply.output_tokens) == ("recorded (other, 2026-11-21)", 0, 7)


@pytest.mark.parametrize(
    "place", [{"role": "repair"}, {"target": "triton"}, {"parent": "cd" * 8}, {"attempt": 1}, {"problem": "softmax"}]
)
def test_another_place_has_no_reply(recording: Path, place: dict[str, object]) -> None:
    request = ChatRequest.model_validate({**REQUEST.model_dump(), **place})
    with pytest.raises(NothingRecorded) as caught:
        RecordedModel(recording).ask(request)
    said = str(caught.value)
    assert all(str(part) in said for part in (request.role.value, request.target, request.parent, request.problem))


def test_no_recording_says_how_to_go_live(tmp_path: Path) -> None:
    with pytest.raises(NothingRecorded, match=r"OPENAI_API_KEY or AGENTGEN_BASE_URL and give --model"):
        RecordedModel(tmp_path / "recording")


@pytest.mark.parametrize(
    ("provenance", "reason"),
    [
        (None, "provenance.yaml cannot be read"),
        ("model: [", "provenance.yaml cannot be read"),
        ("model: m\n", "date: Field required"),
        ("model: m\ndate: 2026-11-21\nauthor: x\n", "author: Extra inputs"),
        ("", "provenance.yaml: file"),
    ],
)
def test_provenance_must_be_told(tmp_path: Path, provenance: str | None, reason: str) -> None:
    if provenance is not None:
        (tmp_path / "provenance.yaml").write_text(provenance)
    with pytest.raises(BadInput, match=reason) as caught:
        RecordedModel(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_spoilt_reply_is_no_missing_one(recording: Path) -> None:
    reply_path(recording, REQUEST).write_text("---\ncost_usd: a lot\n---\nHere.")
    with pytest.raises(ModelUnavailable, match="cost_usd"):
        RecordedModel(recording).ask(REQUEST)


def test_replaying_needs_no_client() -> None:
    code = "import sys, agentgen.models.recorded, agentgen.models.mailbox; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
