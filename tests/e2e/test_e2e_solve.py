"""A whole search through the mailbox with the real judge, and what is left when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from e2e_square import FORGETS_THE_WEIGHT, HONEST, agentgen, command, environment

IDEAS = {
    "ideas": [
        {
            "category": "parallelism and occupancy",
            "title": "One thread per block of rows",
            "reasoning": "Rows are independent.",
            "predicted_speedup": 1.2,
        },
        {
            "category": "memory access",
            "title": "One pass over x",
            "reasoning": "Read once, write once.",
            "predicted_speedup": 1.5,
        },
    ]
}


def _answer(mailbox: Path, texts: dict[str, list[str]]) -> int:
    """Answers every open request by its role; returns how many."""
    requests = sorted(mailbox.glob("*.request.md"))
    open_ones = [r for r in requests if not (mailbox / r.name.replace(".request.", ".reply.")).exists()]
    for request in open_ones:
        role = request.name.split("-")[0]
        reply = mailbox / request.name.replace(".request.", ".reply.")
        reply.write_text(texts[role].pop(0))
    time.sleep(0.3)  # a mailbox reads a file only when it has been left alone for 0.2 s
    return len(open_ones)


@pytest.mark.slow
def test_a_search_waits_for_each_answer_and_ends_with_a_kernel(home: Path) -> None:
    texts = {
        "ideas": [json.dumps(IDEAS)],
        "write": [f"```python\n{FORGETS_THE_WEIGHT}\n```", f"```python\n{HONEST}\n```"],
        "repair": [f"The weight was missing.\n```python\n{HONEST}\n```"],
    }
    mailbox = home / "mailbox"
    code, answer = agentgen(
        home, "solve", "square", "--model", f"mailbox:{mailbox}", "--device", "cpu", "--rounds", "1"
    )
    assert (code, answer["status"]) == (75, "waiting")
    assert _answer(mailbox, texts) == 1
    code, answer = agentgen(home, "resume", "latest")
    assert code == 75
    assert _answer(mailbox, texts) == 2
    code, answer = agentgen(home, "resume", "latest")
    assert code == 75
    assert sorted(trial["outcome"] for trial in answer["trials"]) == ["PASSED", "WRONG_VALUES"]
    assert _answer(mailbox, texts) == 1
    code, answer = agentgen(home, "resume", "latest")
    assert (code, answer["status"]) == (0, "done")
    assert [trial["repair"] for trial in answer["trials"]].count(1) == 1
    best = next(trial for trial in answer["trials"] if trial["candidate"] == answer["best"])
    assert best["outcome"] == "PASSED"
    assert Path(answer["kernel"]).read_text().strip() == HONEST.strip()
    code, again = agentgen(home, "resume", "latest")
    assert code == 0
    assert again["trials"] == answer["trials"]


def _descendants_alive(marker: str) -> list[int]:
    """Pids whose environment names this test's store."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in text:
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)], ids=["ctrl-c", "kill -9"]
)
def test_an_interrupted_command_leaves_no_process(home: Path, number: signal.Signals) -> None:
    started = subprocess.Popen(
        command("verify", "square", "honest.py", "--device", "cpu"),
        cwd=home,
        env={**environment(home), "TMPDIR": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr
    for line in started.stderr:
        if line.startswith("check"):
            break
    # The guests' environment is scrubbed; their folders lie in the TMPDIR of the judge.
    assert len(_descendants_alive(str(home))) >= 4, "command, judge, zygote and guest should be running"
    started.send_signal(number)
    started.wait(20)
    deadline = time.monotonic() + 10
    while _descendants_alive(str(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _descendants_alive(str(home)) == []
