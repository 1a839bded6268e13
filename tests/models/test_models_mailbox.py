"""The mailbox, with answers written by other threads and hands."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import anyio
import pytest
from asking import ask
from written_requests import read_request

from agentgen.errors import ModelUnavailable, ReplyPending
from agentgen.models.chat import ChatModel
from agentgen.models.exchange import reply_path, request_path
from agentgen.models.mailbox import REST_S, MailboxModel, replies, wait_for_another
from agentgen.records.chat import ChatReply, ChatRequest, Role

REQUEST = ChatRequest(role=Role.IDEAS, problem="conv2d", target="cpu", parent="ab" * 8, system="s", prompt="p")


def test_asks_once_then_answers(tmp_path: Path) -> None:
    model: ChatModel = MailboxModel(tmp_path / "box")
    with pytest.raises(ReplyPending, match=request_path(tmp_path / "box", REQUEST).name):
        ask(model, REQUEST)
    request = request_path(tmp_path / "box", REQUEST)
    assert read_request(request) == REQUEST
    written_ns = request.stat().st_mtime_ns
    with pytest.raises(ReplyPending):
        ask(model, REQUEST)
    assert request.stat().st_mtime_ns == written_ns

    answer = reply_path(tmp_path / "box", REQUEST)
    answer.write_text("")  # an editor was opened
    with pytest.raises(ReplyPending):
        ask(model, REQUEST)
    answer.write_text("Tile it.")
    assert ask(model, REQUEST) == ChatReply(text="Tile it.", model="mailbox")
    answer.write_text("---\nmodel: a colleague\n---\nTile it.")
    assert ask(model, REQUEST).model == "a colleague"


def test_another_attempt_is_another_request(tmp_path: Path) -> None:
    model = MailboxModel(tmp_path)
    reply_path(tmp_path, REQUEST).write_text("Of no use.")
    again = REQUEST.model_copy(update={"attempt": 1})
    with pytest.raises(ReplyPending):
        ask(model, again)


def test_a_reply_being_written_is_waited_for(tmp_path: Path) -> None:
    answer = reply_path(tmp_path, REQUEST)
    started = threading.Event()

    def write_in_pieces() -> None:
        with answer.open("w") as file:
            for piece in ("Tile ", "it ", "well."):
                file.write(piece)
                file.flush()
                started.set()
                time.sleep(REST_S / 4)

    writer = threading.Thread(target=write_in_pieces)
    writer.start()
    started.wait(5)
    assert ask(MailboxModel(tmp_path), REQUEST).text == "Tile it well."
    writer.join()


def test_others_go_on_while_a_reply_is_being_written(tmp_path: Path) -> None:
    reply_path(tmp_path, REQUEST).write_text("Tile it.")

    async def both() -> list[str]:
        order: list[str] = []

        async def asked() -> None:
            order.append((await MailboxModel(tmp_path).ask(REQUEST)).text)

        async with anyio.create_task_group() as group:
            group.start_soon(asked)
            await anyio.sleep(REST_S / 4)
            order.append("went on")
        return order

    assert anyio.run(both) == ["went on", "Tile it."]


def test_a_reply_stays_after_it_was_taken(tmp_path: Path) -> None:
    reply_path(tmp_path, REQUEST).write_text("Tile it.")
    anyio.run(MailboxModel(tmp_path).taken, REQUEST)
    assert ask(MailboxModel(tmp_path), REQUEST).text == "Tile it."


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "box").write_text("")
    with pytest.raises(ModelUnavailable, match="box cannot be used"):
        ask(MailboxModel(tmp_path / "box"), REQUEST)


def test_a_spoilt_header_gets_an_error_file_until_it_is_corrected(tmp_path: Path) -> None:
    model, reply = MailboxModel(tmp_path), reply_path(tmp_path, REQUEST)
    reply.write_text("---\ncost_usd: a lot\n---\nTile it.")
    with pytest.raises(ReplyPending):
        ask(model, REQUEST)
    (error,) = tmp_path.glob("*.error.md")
    assert "cost_usd" in error.read_text()
    assert reply.name in error.read_text()
    reply.write_text("---\ncost_usd: 0.5\n---\nTile it.")
    assert ask(model, REQUEST).cost_usd == 0.5
    assert not list(tmp_path.glob("*.error.md"))


def test_a_refused_reply_gets_an_error_file(tmp_path: Path) -> None:
    MailboxModel(tmp_path).refuse(REQUEST, "No fenced block in it")
    (error,) = tmp_path.glob("*.error.md")
    assert "No fenced block in it" in error.read_text()


def test_another_reply_is_waited_for(tmp_path: Path) -> None:
    answer = reply_path(tmp_path, REQUEST)
    known = replies([tmp_path])
    assert known == frozenset()
    threading.Timer(0.2, answer.write_text, ["Tile it."]).start()
    wait_for_another([tmp_path], known)
    assert answer.exists()
    wait_for_another([tmp_path], known)  # one that came meanwhile: no wait at all


def test_another_reply_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    start_s = time.monotonic()
    wait_for_another([tmp_path], replies([tmp_path]), start_s + 0.1)
    assert 0.1 <= time.monotonic() - start_s < 5
