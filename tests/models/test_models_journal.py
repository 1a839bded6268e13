"""Replies that arrived and were not stored: a killed process finds them again and pays once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from asking import IDEAS, REQUEST, ask, model, until
from fault_server import OK, Answer, Ending, FaultServer, chunk, completion, error, speech, streamed

from agentgen.errors import ModelUnavailable
from agentgen.models.journal import Journal
from agentgen.models.pieces import End, Piece, Used, whole_reply
from agentgen.records.chat import ChatReply, Fault

Serve = Callable[..., FaultServer]
PIECES = [Piece(reasoning="Hm."), Piece("Do\u2028\ud83d"), Piece("\ude00ne.\r\n"), Piece(refusal="No.")]
END = End(model="m", finish_reason="stop", used=Used(output_tokens=5, cost_usd=0.5), seconds=1.5)


def written(folder: Path) -> Path:
    with Journal(folder).page("r") as page:
        for piece in PIECES:
            page.add(piece)
        page.end(END)
    return folder / "r.jsonl"


def test_what_was_written_is_the_reply(tmp_path: Path) -> None:
    file = written(tmp_path / "made")
    assert Journal(tmp_path / "made").reply("r") == whole_reply(PIECES, END)
    assert len(file.read_bytes().splitlines()) == 5
    Journal(tmp_path / "made").drop("r")
    Journal(tmp_path / "made").drop("r")
    assert list(file.parent.iterdir()) == []
    assert Journal(tmp_path / "made").reply("r") is None


def test_a_journal_that_was_cut_anywhere_is_none(tmp_path: Path) -> None:
    file = written(tmp_path)
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        assert Journal(tmp_path).reply("r") is None


def test_of_several_ends_the_last_whole_one_counts(tmp_path: Path) -> None:
    file = written(tmp_path)
    before = file.read_bytes()
    with file.open("a") as journal:
        journal.write(json.dumps({"end": END.model_copy(update={"seconds": 2.5}).model_dump()}) + "\n")
    after = file.read_bytes()
    for size in range(len(before), len(after) + 1):
        file.write_bytes(after[:size])
        reply = Journal(tmp_path).reply("r")
        assert reply is not None
        assert reply.seconds == (2.5 if size == len(after) else 1.5)


@pytest.mark.parametrize("line", ["[]", '{"text": 3}', '{"loud": "x"}', "\xff"])
def test_a_piece_that_is_nonsense_makes_a_journal_none(tmp_path: Path, line: str) -> None:
    file = written(tmp_path)
    file.write_text(f"{line}\n{file.read_text()}")
    assert Journal(tmp_path).reply("r") is None


@pytest.mark.parametrize("line", ["{}", '{"end": 3}', '{"end": {}}', '{"text": "x"}'])
def test_an_end_that_is_none_makes_a_journal_none(tmp_path: Path, line: str) -> None:
    file = written(tmp_path)
    file.write_text(f"{file.read_text()}{line}\n")
    assert Journal(tmp_path).reply("r") is None


def test_a_disk_that_is_full_costs_the_journal_and_not_the_reply(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, written_lines = os.write, 0

    def full(fd: int, data: bytes) -> int:
        nonlocal written_lines
        if not data.startswith((b'{"text"', b'{"end"')):
            return write(fd, data)
        written_lines += 1
        if written_lines == 2:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr("agentgen.models.journal.os.write", full)
    asked = model(serve(streamed(*speech("One ", "two ", "three."))), journal=tmp_path)
    assert ask(asked).text == "One two three."
    assert written_lines == 2, "after a gap nothing more is written"
    assert "No space left" in caplog.text
    assert Journal(tmp_path).reply(REQUEST.id) is None


def test_nothing_is_sent_where_nothing_can_be_kept(tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / f"{REQUEST.id}.jsonl").mkdir(parents=True)
    server = serve(OK)
    for folder in ("file", "folder"):
        with pytest.raises(ModelUnavailable, match=r"journal of replies in .* cannot be used"):
            ask(model(server, journal=tmp_path / folder))
    assert server.seen == []


def test_a_reply_is_kept_until_it_is_taken(tmp_path: Path, serve: Serve) -> None:
    server = serve(OK)
    asked = model(server, journal=tmp_path)
    reply = ask(asked)
    assert reply.text == "Done."
    assert ask(model(server, journal=tmp_path)) == reply  # another process, or this one
    assert len(server.seen) == 1
    ask(asked, IDEAS)
    assert len(list(tmp_path.iterdir())) == 2
    anyio.run(asked.taken, REQUEST)
    anyio.run(asked.taken, REQUEST)
    assert [file.name for file in tmp_path.iterdir()] == [f"{IDEAS.id}.jsonl"]
    ask(asked)
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (streamed(chunk("Half"), ending=Ending.CUT), Fault.BROKEN),
        (streamed(*speech()), Fault.EMPTY),
        (streamed(*speech("Half", finish="length")), Fault.LENGTH),
        (Answer(body=completion("Done.")), None),
    ],
)
def test_a_faulty_reply_was_paid_and_is_kept_too(
    tmp_path: Path, serve: Serve, answer: Answer, fault: Fault | None
) -> None:
    server = serve(answer)
    reply = ask(model(server, journal=tmp_path))
    assert reply.fault is fault
    assert ask(model(server, journal=tmp_path)) == reply
    assert len(server.seen) == 1


def test_what_never_began_leaves_no_journal(tmp_path: Path, serve: Serve) -> None:
    with pytest.raises(ModelUnavailable):
        ask(model(serve(Answer(401, error("bad key"))), journal=tmp_path))
    assert list(tmp_path.iterdir()) == []
    server = serve(Answer(503, error("x"), {"retry-after": "0.01"}), OK)
    assert ask(model(server, journal=tmp_path)).text == "Done."


def test_a_cancelled_reply_is_asked_for_anew(tmp_path: Path, serve: Serve) -> None:
    server = serve(streamed(chunk("Half"), ending=Ending.SILENT), OK)
    asked = model(server, journal=tmp_path)

    async def cancelled() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(asked.ask, REQUEST)
            await until(lambda: server.parts == 1)
            group.cancel_scope.cancel()

    anyio.run(cancelled)
    assert Journal(tmp_path).reply(REQUEST.id) is None
    assert ask(asked).text == "Done."
    assert len(server.seen) == 2


ASKS = """
import sys, time, anyio
from pathlib import Path
from asking import REQUEST
from agentgen.models.client import OpenAIModel
anyio.run(OpenAIModel("m", sys.argv[1], None, journal=Path(sys.argv[2])).ask, REQUEST)
print("answered", flush=True)
time.sleep(60)
"""


def killed(server: FaultServer, folder: Path, *, when: Callable[[subprocess.Popen[str]], None]) -> None:
    """Runs a process that asks, and kills it after `when` returned."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    asker = subprocess.Popen(
        [sys.executable, "-c", ASKS, server.url, str(folder)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    with asker:
        try:
            when(asker)
        finally:
            asker.send_signal(signal.SIGKILL)


def test_killed_between_the_reply_and_the_store(tmp_path: Path, serve: Serve) -> None:
    server = serve(OK)

    def answered(asker: subprocess.Popen[str]) -> None:
        assert asker.stdout is not None
        assert asker.stdout.readline() == "answered\n"

    killed(server, tmp_path, when=answered)
    reply = ask(model(server, journal=tmp_path))
    assert (reply.text, reply.output_tokens) == ("Done.", 5)
    assert isinstance(reply, ChatReply)
    assert len(server.seen) == 1


def lines_of(file: Path, count: int) -> Callable[[subprocess.Popen[str]], None]:
    """Returns what waits until a journal has so many lines."""

    def wait(asker: subprocess.Popen[str]) -> None:
        deadline_s = time.monotonic() + 30
        while not file.exists() or file.read_bytes().count(b"\n") < count:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)

    return wait


def test_killed_between_the_end_and_the_usage(tmp_path: Path, serve: Serve) -> None:
    server = serve(streamed(chunk("Done."), chunk(finish="stop"), ending=Ending.SILENT), OK)
    killed(server, tmp_path, when=lines_of(tmp_path / f"{REQUEST.id}.jsonl", 2))
    reply = ask(model(server, journal=tmp_path))
    assert (reply.text, reply.fault, reply.output_tokens) == ("Done.", None, None)
    assert len(server.seen) == 1


def test_killed_within_a_reply(tmp_path: Path, serve: Serve) -> None:
    server = serve(streamed(chunk("Half "), chunk("a "), ending=Ending.SILENT), OK)
    file = tmp_path / f"{REQUEST.id}.jsonl"

    killed(server, tmp_path, when=lines_of(file, 2))
    assert file.read_text() == '{"text": "Half "}\n{"text": "a "}\n'
    assert ask(model(server, journal=tmp_path)).text == "Done."
    assert len(server.seen) == 2
