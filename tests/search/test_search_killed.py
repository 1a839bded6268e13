"""A run killed with SIGKILL, 50 times: nothing is lost, nothing is paid or evaluated twice.

The model is a real server that streams, asked by the real client; it counts what it was paid for. 30 kills come at
random moments from outside, 20 at the places where most is at stake, by the process itself.

What came in full is in the store or in the client's journal, and is not asked for again. A reply whose last piece the
server has sent and the killed process has not read is in neither: no client can know of it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import pytest
from search_factories import PROBLEM, ReplayJudge, make_run
from search_script import DONE, PLAN, ROOT, script, trees

from agentgen.models.client import OpenAIModel
from agentgen.models.journal import Journal
from agentgen.models.roster import Roster
from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.trial import Trial
from agentgen.search.loop import run_search
from agentgen.store.database import Database
from agentgen.store.ledger import Ledger, open_ledger

RANDOM, DIRECTED = 30, 20
PIECES = 4
STEP_S = 0.003
"""Between the pieces of an answer, and for an evaluation: kills fall into them too, and not only between."""
PLACES = ("before a reply is stored", "after a reply is stored", "before a trial is stored", "after a trial is stored")


class Server(ThreadingHTTPServer):
    """Answers by the script, in pieces."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paid: Counter[str] = Counter()
        """Answers that were sent in full, by the prompt."""
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = asked["messages"][1]["content"]
        answer = script(request_of(prompt))
        assert isinstance(answer, str)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        size = -(-len(answer) // PIECES)
        try:
            for start in range(0, len(answer), size):
                self._say({"delta": {"content": answer[start : start + size]}})
                time.sleep(STEP_S / PIECES)
            self._say({"delta": {}, "finish_reason": "stop"})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            return  # nobody listens any more
        self.server.paid[prompt] += 1

    def _say(self, choice: dict[str, object]) -> None:
        chunk = {
            "id": "1",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "m",
            "choices": [{"index": 0} | choice],
        }
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def request_of(prompt: str) -> ChatRequest:
    """Returns what the script needs to know of a request, read from its words."""
    role = Role.IDEAS
    if "# The candidate that failed" in prompt:
        role = Role.REPAIR
    elif "# The idea to implement" in prompt:
        role = Role.WRITE
    parent = ROOT if "No kernel has been written yet" in prompt else "a candidate"
    return ChatRequest(role=role, problem=PROBLEM.name, target="cpp", parent=parent, system="", prompt=prompt)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class LoggedJudge(ReplayJudge):
    """Says on paper what it evaluates."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    async def evaluate(self, candidate: Candidate, on_stage: object) -> Trial:
        with self._log.open(
            "ab", buffering=0
        ) as file:  # one write to a file opened for appending is whole or not at all
            file.write(f"{candidate.id}\n".encode())
        await anyio.sleep(STEP_S)
        return await super().evaluate(candidate, lambda _stage: None)


class FatalLedger(Ledger):
    """Kills its process at one place, the n-th time that it comes by."""

    def __init__(self, url: str, place: str, times: int) -> None:
        super().__init__(Database(url))
        self._place = place
        self._left = times

    def add_reply(self, run_id: str, request: ChatRequest, reply: ChatReply) -> bool:
        self._pass_by("before a reply is stored")
        added = super().add_reply(run_id, request, reply)
        self._pass_by("after a reply is stored")
        return added

    def add_trial(self, run_id: str, trial: Trial) -> bool:
        self._pass_by("before a trial is stored")
        added = super().add_trial(run_id, trial)
        self._pass_by("after a trial is stored")
        return added

    def _pass_by(self, place: str) -> None:
        if place == self._place:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def go_on(folder: Path, url: str, place: str, times: int) -> None:
    with FatalLedger(store_of(folder), place, times) as ledger:
        ledger.create_run(make_run(PLAN))
        model = OpenAIModel("m", url, None, journal=folder / "replies")
        judge = LoggedJudge(folder / "judged.log")
        os._exit(0 if run_search(ledger.run("run-1"), ledger, Roster.of(model), judge, lambda _: None) == DONE else 1)


def store_of(folder: Path) -> str:
    return f"sqlite:///{folder}/agentgen.db"


def killed(folder: Path, server: Server, *, after_s: float | None = None, place: str = "", times: int = 0) -> bool:
    """Goes on with the run in another process; returns whether that was killed before it came to its end."""
    child = multiprocessing.get_context("fork").Process(target=go_on, args=(folder, server.url, place, times))
    child.start()
    child.join(after_s)
    if child.is_alive():
        os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0


def there(folder: Path) -> tuple[set[str], set[str], set[str]]:
    """Returns the prompts with a stored reply, those with one in the journal alone, and the candidates with a trial."""
    with open_ledger(store_of(folder)) as ledger:
        if not ledger.runs():
            return set(), set(), set()
        exchanges, journal = ledger.exchanges("run-1"), Journal(folder / "replies")
        stored = {one.request.prompt for one in exchanges if one.reply}
        came = {one.request.prompt for one in exchanges if not one.reply and journal.reply(one.request.id)}
        return stored, came, {trial.candidate for trial in ledger.trials("run-1")}


def judged(folder: Path) -> Counter[str]:
    log = folder / "judged.log"
    return Counter(log.read_text().split() if log.exists() else ())


class Ordeal:
    """Runs that are killed and gone on with until they end."""

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder = folder
        self._server = server
        self._runs = 0
        self.rescued = 0
        """Replies that a kill left in the journal alone."""
        begun = time.monotonic()
        first = self.new()
        assert not killed(first, server)
        self.whole_s = time.monotonic() - begun
        with open_ledger(store_of(first)) as ledger:
            self._whole = trees(ledger)

    def new(self) -> Path:
        """Returns the folder of a run that has not begun; the server has been paid for nothing of it."""
        self._runs += 1
        self._server.paid.clear()
        folder = self._folder / str(self._runs)
        folder.mkdir()
        return folder

    def kill(self, folder: Path, *, after_s: float | None = None, place: str = "", times: int = 0) -> bool:
        """Goes on with a run until a kill, and says what may not be: something that was there is done again."""
        stored, came, tried = there(folder)
        self.rescued += len(came)
        paid, judged_before = self._server.paid.copy(), judged(folder)
        was_killed = killed(folder, self._server, after_s=after_s, place=place, times=times)
        again = {prompt for prompt in stored | came if self._server.paid[prompt] > paid[prompt]}
        assert not again, "paid twice"
        assert not tried & (judged(folder) - judged_before).keys(), "judged twice"
        return was_killed

    def ends_well(self, folder: Path) -> None:
        """The run is the one that nobody killed."""
        with open_ledger(store_of(folder)) as ledger:
            assert trees(ledger) == self._whole
        assert not list((folder / "replies").iterdir()), "the journal keeps nothing that the store has"


@pytest.mark.slow
def test_kills_at_random_moments(server: Server, tmp_path: Path) -> None:
    ordeal, kills = Ordeal(tmp_path, server), 0
    moments = random.Random(int.from_bytes(os.urandom(4)))
    while kills < RANDOM:
        folder = ordeal.new()
        while ordeal.kill(folder, after_s=moments.uniform(0.02, ordeal.whole_s)):
            kills += 1
        ordeal.ends_well(folder)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_kills_where_most_is_at_stake(server: Server, tmp_path: Path, place: str) -> None:
    ordeal, kills = Ordeal(tmp_path, server), 0
    moments = random.Random(int.from_bytes(os.urandom(4)))
    while kills < DIRECTED // len(PLACES):
        folder = ordeal.new()
        while ordeal.kill(folder, place=place, times=moments.randint(1, 4)):
            kills += 1
        ordeal.ends_well(folder)
    if place.startswith("before a reply"):
        assert ordeal.rescued >= kills, "each kill left one there"
