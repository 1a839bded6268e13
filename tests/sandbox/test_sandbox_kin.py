"""A guest's other processes: seen while they live, counted when they are gone, ended with the guest. Real processes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from sandbox_processes import KINDS, alive, descendants, eventually, gone, known_as, opened, parent_of

from agentgen.sandbox.forked import ProcessGuest
from agentgen.sandbox.kin import children
from agentgen.sandbox.process import ProcessSandbox

RUN_AWAY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(f"child {os.getpid()}", flush=True)
        while True:
            time.sleep(60)
    os._exit(0)
os.wait()
class ModelNew: ...
"""
GENERATIONS = """
import os, time
if os.fork() == 0:
    os.setsid()
    for _ in range(2):
        if os.fork():
            break
        os.setsid()
    while True:
        time.sleep(60)
class ModelNew: ...
"""
WORKED = """
import os, time
if os.fork() == 0:
    start = time.process_time()
    while time.process_time() - start < 0.3: pass
    os._exit(0)
os.wait()
class ModelNew: ...
"""
IGNORES = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
class ModelNew: ...
"""


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[ProcessSandbox]:
    one = opened(request.param)
    yield one
    one.close()


@pytest.fixture
def guest(sandbox: ProcessSandbox) -> Iterator[ProcessGuest]:
    one = sandbox.start()
    yield one
    one.kill()


def load(guest: ProcessGuest, source: str) -> None:
    guest.post({"do": "load", "source": source, "arithmetic": "fp32"})
    assert guest.answer(20)["ok"]


def child_of(guest: ProcessGuest) -> int:
    assert eventually(lambda: "child " in guest.log)
    found = re.search(r"child (\d+)", guest.log)
    assert found
    return known_as(int(found[1]), guest)


def test_a_plain_guest_is_alone(guest: ProcessGuest) -> None:
    load(guest, "class ModelNew: ...")
    kin = guest.kin()
    assert (kin.living, kin.unseen) == ((), False)


def test_a_child_in_a_session_of_its_own_is_seen_and_dies_with_the_guest(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    load(guest, RUN_AWAY)
    child = child_of(guest)
    assert alive(child)
    assert any(str(child) in name for name in guest.kin().living)
    guest.kill()
    assert gone([child])


def test_whoever_is_in_its_namespace_is_its_own(sandbox: ProcessSandbox, guest: ProcessGuest) -> None:
    """As one that was born beside it (CLONE_PARENT), and that is no child of its family."""
    load(guest, "class ModelNew: ...")
    if not sandbox.isolation.startswith("namespaces"):
        pytest.skip(f"no namespace of its own: {sandbox.isolation}")
    command = ["nsenter", f"--pid=/proc/{guest.pid}/ns/pid", "sleep", "60"]
    other = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        if not eventually(lambda: bool(children(other.pid)) or other.poll() is not None) or other.poll() is not None:
            pytest.skip("nobody may enter the namespace here")
        assert [name.partition(" ")[0] for name in guest.kin().living] == ["sleep"]
    finally:
        subprocess.run(["pkill", "-P", str(other.pid)], check=False)
        other.wait(10)


def test_guests_are_not_each_other_s_kin(sandbox: ProcessSandbox, guest: ProcessGuest) -> None:
    other = sandbox.start()
    try:
        load(guest, "class ModelNew: ...")
        load(other, "class ModelNew: ...")
        assert guest.kin().living == other.kin().living == ()
    finally:
        other.kill()


def test_the_time_of_a_child_that_is_gone_is_counted(guest: ProcessGuest) -> None:
    before = guest.kin().gone_s
    load(guest, WORKED)
    kin = guest.kin()
    assert kin.living == ()
    assert 0.2 <= kin.gone_s - before <= 1.0


def test_a_guest_that_lets_nobody_count_its_children_is_noticed(guest: ProcessGuest) -> None:
    load(guest, IGNORES)
    assert guest.kin().unseen


def test_of_a_guest_that_is_gone_nothing_is_known(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    guest.kill()
    with pytest.raises(OSError):
        guest.kin()


def test_children_are_listed(guest: ProcessGuest) -> None:
    assert guest.pid in children(parent_of(guest.pid))
    assert children(guest.pid) == []


def test_generations_in_sessions_of_their_own_die_with_the_guest(sandbox: ProcessSandbox) -> None:
    """Of plain processes a grandchild becomes the zygote's when the child is killed."""
    guest = sandbox.start()
    pids = generations(guest)
    guest.kill()
    assert gone(pids)


def test_generations_die_with_the_sandbox(sandbox: ProcessSandbox) -> None:
    """The last test with this sandbox."""
    pids = generations(sandbox.start())
    sandbox.close()
    assert gone(pids)


def generations(guest: ProcessGuest) -> set[int]:
    load(guest, GENERATIONS)
    assert eventually(lambda: len(descendants(guest.pid)) == 3)
    return descendants(guest.pid)
