"""Replaying a folder that a mailbox left."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import anyio
import pytest
from asking import ask

from agentgen.errors import BadInput, ModelUnavailable, NothingRecorded
from agentgen.models.chat import ChatModel
from agentgen.models.exchange import reply_path, write_request
from agentgen.models.recorded import Provenance, Recorded, RecordedModel, record
from agentgen.records.chat import ChatReply, ChatRequest, Role

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
    reply = ask(model, REQUEST.model_copy(update={"prompt": "Other words, other times."}))
    assert reply.text == "Here you are."
    assert reply.model == model.name == "recorded (a model, through the mailbox, 2026-11-21)"
    assert reply.cost_usd == 0


def test_a_reply_stays_after_it_was_taken(recording: Path) -> None:
    anyio.run(RecordedModel(recording).taken, REQUEST)
    assert ask(RecordedModel(recording), REQUEST).text == "Here you are."


def test_the_author_of_one_reply_is_kept(recording: Path) -> None:
    reply_path(recording, REQUEST).write_text("---\nmodel: other\ncost_usd: 3\noutput_tokens: 7\n---\nHere.")
    reply = ask(RecordedModel(recording), REQUEST)
    assert (reply.model, reply.cost_usd, reply.output_tokens) == ("recorded (other, 2026-11-21)", 0, 7)


@pytest.mark.parametrize(
    "place", [{"role": "repair"}, {"target": "triton"}, {"parent": "cd" * 8}, {"attempt": 1}, {"problem": "softmax"}]
)
def test_another_place_has_no_reply(recording: Path, place: dict[str, object]) -> None:
    request = ChatRequest.model_validate({**REQUEST.model_dump(), **place})
    with pytest.raises(NothingRecorded) as caught:
        ask(RecordedModel(recording), request)
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
        ask(RecordedModel(recording), REQUEST)


def test_replaying_needs_no_client() -> None:
    code = "import sys, agentgen.models.recorded, agentgen.models.mailbox; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


SAID = Provenance(model="a model", date=date(2026, 11, 21), runs=("r1",), note="As they came.")


def test_what_is_recorded_replays(tmp_path: Path) -> None:
    unnamed = ChatReply(text="---\nHere.", model="mailbox")
    priced = ChatReply(text="There.", model="other", output_tokens=7, cost_usd=0.5, seconds=3.0)
    again = REQUEST.model_copy(update={"attempt": 1})
    folder = tmp_path / "recording"
    assert record(folder, [(REQUEST, unnamed), (again, priced)], SAID) == Recorded(added=2, kept=0)
    model = RecordedModel(folder)
    assert model.provenance == SAID
    assert (ask(model, REQUEST).text, ask(model, REQUEST).model) == (unnamed.text, "recorded (a model, 2026-11-21)")
    assert (ask(model, again).model, ask(model, again).output_tokens) == ("recorded (other, 2026-11-21)", 7)


def test_recording_another_run_adds_what_is_new_and_keeps_what_was_there(tmp_path: Path) -> None:
    other = REQUEST.model_copy(update={"parent": "cd" * 8})
    record(tmp_path, [(REQUEST, ChatReply(text="First.", model="a model"))], SAID)
    later = SAID.model_copy(update={"runs": ("r2",), "date": date(2026, 11, 22), "note": "In haste."})
    second = [(REQUEST, ChatReply(text="Second.", model="a model")), (other, ChatReply(text="New.", model="a model"))]
    assert record(tmp_path, second, later) == Recorded(added=1, kept=1)
    assert record(tmp_path, second, later) == Recorded(added=0, kept=1)
    model = RecordedModel(tmp_path)
    assert (ask(model, REQUEST).text, ask(model, other).text) == ("First.", "New.")
    assert model.provenance.runs == ("r1", "r2")
    assert model.provenance.date == date(2026, 11, 22)
    assert model.provenance.note == "As they came. In haste."


def test_two_models_do_not_share_a_recording(tmp_path: Path) -> None:
    record(tmp_path, [], SAID)
    with pytest.raises(BadInput, match="holds replies of 'a model', these are of 'another'"):
        record(tmp_path, [], SAID.model_copy(update={"model": "another"}))


def test_a_recording_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"the recording .*file cannot be written"):
        record(tmp_path / "file", [(REQUEST, ChatReply(text="x", model="m"))], SAID)
