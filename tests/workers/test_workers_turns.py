"""Turns on a device, taken by real processes: in order, one at a time, and whatever becomes of those before."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentgen.errors import MachineFailure
from agentgen.workers.turns import turn

ROOT = Path(__file__).parents[2]
PARTY = """
import sys
import time
from pathlib import Path
from agentgen.workers.turns import turn

place, log, name, turns = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def note(line):
    with log.open("ab", buffering=0) as file:  # one write to a file opened for appending is whole or not at all
        file.write(line.encode() + b"\\n")

for _ in range(turns):
    with turn("cpu", lambda: print("waits", flush=True), place):
        note(f"{name} in")
        print("in", flush=True)
        time.sleep(0.002) if turns > 1 else sys.stdin.read()
        note(f"{name} out")
"""


class Party:
    """A process that takes turns: one that it holds until it is let go, or several short ones."""

    def __init__(self, place: Path, log: Path, name: str, turns: int = 1) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARTY, str(place), str(log), name, str(turns)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self, word: str) -> None:
        """Waits for what it says next, which must be `word`."""
        assert self.process.stdout
        assert self.process.stdout.readline().strip() == word

    def let_go(self) -> None:
        """Has it give its turn back."""
        self.process.communicate()
        assert self.process.returncode == 0

    def kill(self) -> None:
        """Kills it so that it can tidy nothing up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What all of them write to."""
    return tmp_path / "log"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where their queues are."""
    return tmp_path / "turns"


@pytest.fixture
def parties() -> Iterator[ExitStack]:
    """Ends what a failing test leaves."""
    with ExitStack() as stack:
        yield stack


def party(parties: ExitStack, place: Path, log: Path, name: str, turns: int = 1) -> Party:
    one = Party(place, log, name, turns)
    parties.callback(lambda: (one.process.kill(), one.process.communicate()))
    return one


def tickets(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("*/*"))


# ---- order and exclusion ---------------------------------------------------------------------------------------------


def test_who_comes_first_is_served_first(place: Path, log: Path, parties: ExitStack) -> None:
    names = "abcd"
    waiting: list[Party] = []
    for name in names:
        waiting.append(party(parties, place, log, name))
        waiting[-1].says("in" if name == "a" else "waits")
    assert len(tickets(place)) == 4
    for one in waiting:
        if one is not waiting[0]:
            one.says("in")
        one.let_go()
    assert log.read_text().split("\n")[:-1] == [f"{name} {way}" for name in names for way in ("in", "out")]
    assert tickets(place) == []


def test_never_two_at_once(place: Path, log: Path, parties: ExitStack) -> None:
    count, turns = 4, 25
    for one in [party(parties, place, log, str(number), turns) for number in range(count)]:
        one.let_go()
    lines = log.read_text().splitlines()
    assert len(lines) == 2 * count * turns
    for entry, leaving in zip(lines[::2], lines[1::2], strict=True):
        assert (entry.split()[1], leaving) == ("in", entry.replace("in", "out")), "somebody came between"
    assert tickets(place) == []


def test_threads_of_one_process_take_turns_too(place: Path) -> None:
    inside = 0
    seen: list[int] = []

    def work() -> None:
        nonlocal inside
        for _ in range(20):
            with turn("cpu", place=place):
                inside += 1
                time.sleep(0.0005)
                seen.append(inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 80


def test_those_of_one_device_do_not_wait_for_those_of_another(place: Path) -> None:
    def unexpected() -> None:
        raise AssertionError("it waits")

    with turn("cuda:0", place=place), turn("cuda:1", unexpected, place), turn("cpu", unexpected, place):
        pass


# ---- those who die ---------------------------------------------------------------------------------------------------


def test_a_holder_that_is_killed_holds_nothing(place: Path, log: Path, parties: ExitStack) -> None:
    holder, waiter = party(parties, place, log, "holder"), None
    holder.says("in")
    waiter = party(parties, place, log, "waiter")
    waiter.says("waits")
    holder.kill()
    waiter.says("in")
    waiter.let_go()
    assert log.read_text().splitlines() == ["holder in", "waiter in", "waiter out"]
    assert tickets(place) == [], "the dead one's is removed by who met it"


def test_a_waiter_that_is_killed_is_passed_over_and_lets_nobody_pass(
    place: Path, log: Path, parties: ExitStack
) -> None:
    holder = party(parties, place, log, "holder")
    holder.says("in")
    dead = party(parties, place, log, "dead")
    dead.says("waits")
    last = party(parties, place, log, "last")
    last.says("waits")
    dead.kill()
    time.sleep(0.1)
    assert log.read_text().splitlines() == ["holder in"], "who waited for the dead one waits for the holder now"
    holder.let_go()
    last.says("in")
    last.let_go()
    assert log.read_text().splitlines()[-2:] == ["last in", "last out"]
    assert tickets(place) == []


def test_a_ticket_of_nobody_keeps_nobody_waiting(place: Path) -> None:
    (place / "cpu").mkdir(parents=True)
    (place / "cpu" / "000041-1-abcd").touch()
    (place / "cpu" / "a file of somebody").touch()
    waits: list[bool] = []
    with turn("cpu", lambda: waits.append(True), place):
        (own,) = [name for name in tickets(place) if "-" in name]
        assert own.startswith("000042-"), "after all that were there"
    assert waits == []
    assert tickets(place) == ["a file of somebody"]


def test_a_wait_that_is_interrupted_leaves_no_ticket(place: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with turn("cpu", place=place):
        with pytest.raises(KeyboardInterrupt), turn("cpu", interrupt, place):
            pass
        assert len(tickets(place)) == 1
    assert tickets(place) == []


RESTLESS = """
import fcntl
import sys
import time
from pathlib import Path
from agentgen.workers.turns import turn

place, inside, log = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])

def busy(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False

with open(f"{inside}.0", "a") as before:
    while True:
        # One file is opened before the ticket and one after it: the kernel drops the locks of a killed process one by
        # one, from either end, and one that it has yet to come to is not somebody else inside.
        with turn("cpu", place=place), open(f"{inside}.1", "a") as after:
            alone = not (busy(before) & busy(after))
            with log.open("ab", buffering=0) as file:
                file.write(b"alone\\n" if alone else b"not alone\\n")
            time.sleep(0.001)
            fcntl.flock(before, fcntl.LOCK_UN)
"""


@pytest.mark.slow
def test_two_hundred_kills_at_random_moments_let_nobody_in_beside_another(place: Path, log: Path) -> None:
    def begun() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", RESTLESS, str(place), str(log.with_name("inside")), str(log)]
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})

    moments = random.Random(int.from_bytes(os.urandom(4)))
    running = [begun() for _ in range(5)]
    for _ in range(200):
        time.sleep(moments.uniform(0, 0.1))
        victim = running.pop(moments.randrange(len(running)))
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
        running.append(begun())
    time.sleep(1)
    before = len(log.read_bytes())
    time.sleep(1)
    lines = log.read_text().split("\n")
    for one in running:
        one.kill()
        assert one.wait() == -signal.SIGKILL
    assert set(lines[:-1]) == {"alone"}
    assert len(log.read_bytes()) > before, "and it goes on"
    with turn("cpu", place=place):
        assert len(tickets(place)) == 1, "nothing is left of the dead"


# ---- the place -------------------------------------------------------------------------------------------------------


def test_the_queues_are_closed_to_others(place: Path) -> None:
    with turn("cpu", place=place):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        (own,) = place.glob("*/*")
        assert stat.S_IMODE(own.stat().st_mode) == 0o600


def test_a_place_that_leads_elsewhere_is_not_used(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MachineFailure, match="remove it"), turn("cpu", place=place):
        pass
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_place_that_is_emptied_meanwhile_is_no_fault(place: Path) -> None:
    with turn("cpu", place=place):
        (own,) = place.glob("*/*")
        own.unlink()
        own.parent.rmdir()
    with turn("cpu", place=place):
        assert len(tickets(place)) == 1
