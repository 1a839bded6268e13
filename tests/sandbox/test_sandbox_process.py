"""A real zygote and real guests, in jails, in a container and as plain processes: what they do for the judge, and what
it survives.

What walls keep from them is in test_sandbox_jail.py."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sandbox_processes import (
    KINDS,
    alive,
    descendants,
    eventually,
    gone,
    home_of,
    known_as,
    opened,
    parent_of,
    require_engine,
)

from agentgen.errors import PeerClosed, SandboxUnavailable
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Isolation
from agentgen.records.trial import Outcome
from agentgen.sandbox.forked import LOG_BYTES, ProcessGuest
from agentgen.sandbox.kin import Stopped
from agentgen.sandbox.process import ProcessSandbox
from agentgen.verify.findings import Rejected
from agentgen.verify.session import Session
from agentgen.verify.shared import Region

ROOT = Path(__file__).parents[2]
SECRET = "sk-of-the-user"
SCALE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))
    def forward(self, x):
        return x * self.weight
"""
# A child that only SIGKILL ends, in the guest's process group.
STUBBORN_CHILD = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    print(f"child {os.getpid()}", flush=True)
    while True:
        time.sleep(60)
class ModelNew: ...
"""
OWNER = """
import sys
from agentgen.records.run import Isolation
from agentgen.sandbox.process import ProcessSandbox

sandbox = ProcessSandbox("cpu", isolation=Isolation(sys.argv[2]))
guest = sandbox.start()
guest.post({"do": "load", "source": sys.argv[1], "arithmetic": "fp32"})
assert guest.answer(20)["ok"]
print(guest.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", autouse=True)
def _key_in_our_environment() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", SECRET)
        yield


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Isolation:
    return Isolation(request.param)


@pytest.fixture(scope="module")
def spare(kind: Isolation) -> Iterator[ProcessSandbox]:
    """A sandbox that a test breaks; it warms up while other tests run."""
    if kind is Isolation.DOCKER:
        require_engine()
    one = ProcessSandbox("cpu", isolation=kind)
    yield one
    one.close()


@pytest.fixture(scope="module")
def owner(
    spare: ProcessSandbox, kind: Isolation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[str]]:
    """A program that owns a sandbox with a guest in it."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, STUBBORN_CHILD, kind.value],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path_factory.mktemp("owner"))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture(scope="module")
def sandbox(owner: subprocess.Popen[str], kind: Isolation) -> Iterator[ProcessSandbox]:
    one = opened(kind)
    yield one
    one.close()


@pytest.fixture
def guest(sandbox: ProcessSandbox) -> Iterator[ProcessGuest]:
    one = sandbox.start()
    yield one
    one.kill()
    assert not alive(one.pid)


def ask(guest: ProcessGuest, message: dict[str, Any], *fds: int, timeout_s: float = 20.0) -> dict[str, Any]:
    guest.post(message, fds)
    return guest.answer(timeout_s)


def load(guest: ProcessGuest, source: str, timeout_s: float = 20.0) -> dict[str, Any]:
    return ask(guest, {"do": "load", "source": source, "arithmetic": "fp32"}, timeout_s=timeout_s)


def construct(guest: ProcessGuest, *init_args: Any) -> dict[str, Any]:
    return ask(guest, {"do": "construct", "workload": "main", "init_args": init_args, "seed": 1})


# ---- what guests are for ---------------------------------------------------------------------------------------------


def test_a_candidate_goes_all_the_way(guest: ProcessGuest) -> None:
    assert load(guest, SCALE)["ok"]
    state = construct(guest, 5)["state"]
    assert [(one["name"], one["shape"], one["dtype"]) for one in state] == [("weight", [5], "float32")]

    region = Region(
        "io", [((3, 5), torch.float32, None), ((3, 5), torch.float32, None), ((5,), torch.float32, None)], "cpu"
    )
    x, y, weight = region.tensors
    weight.copy_(torch.arange(5.0))
    x.fill_(2.0)
    assert ask(guest, region.message(), region.fd)["ok"]
    weights = {"do": "weights", "workload": "main", "region": "io", "assign": {"weight": 2}, "load": False}
    assert ask(guest, weights)["ok"]
    window = {"do": "window", "workload": "main", "region": "io", "inputs": [[0]], "outputs": [[1]], "calls": 3}
    answer = ask(
        guest, {**window, "shot": 0, "record": True, "hold": False, "arm": False, "sample": True, "layouts": [None]}
    )
    assert answer["ok"], answer
    assert answer["seconds"] > 0
    assert answer["dispatched"] == {"aten.mul.Tensor": 3}
    assert torch.equal(y, (2 * torch.arange(5.0)).expand(3, 5))
    region.close()


def test_guests_know_nothing_of_each_other(sandbox: ProcessSandbox, guest: ProcessGuest) -> None:
    other = sandbox.start()
    assert load(guest, SCALE)["ok"]
    failure = construct(other, 5)["failure"]  # it has loaded nothing
    assert failure["kind"] == "build"
    other.kill()
    assert construct(guest, 5)["ok"]


def test_a_guest_that_is_told_nonsense_says_so_and_goes_on(guest: ProcessGuest) -> None:
    assert not ask(guest, {"do": "no such thing"})["ok"]
    assert not ask(guest, {"do": "share", "region": "r", "nbytes": 4096, "gaps": [], "slots": []})[
        "ok"
    ]  # no descriptor
    assert ask(guest, {"do": "ping"})["ok"]


# ---- what a candidate may do -----------------------------------------------------------------------------------------


def test_a_flood_on_stdout_is_cut_to_its_end(guest: ProcessGuest) -> None:
    flood = "import os\nfor i in range(3000): os.write(1 + i % 2, b'x' * 9999)\nprint('the end')\nclass ModelNew: ..."
    assert load(guest, flood)["ok"]
    assert eventually(lambda: guest.log.endswith("the end\n"))
    assert len(guest.log) <= LOG_BYTES


def test_output_that_is_no_text_is_shown_all_the_same(guest: ProcessGuest) -> None:
    assert load(guest, "import os\nos.write(1, b'\\xff\\x00ok\\n')\nclass ModelNew: ...")["ok"]
    assert eventually(lambda: guest.log.endswith("ok\n"))


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("import os; os._exit(7)", 7),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
    ids=["_exit", "segfault", "abort", "kill"],
)
def test_a_guest_that_ends_is_known_with_how_it_ended(guest: ProcessGuest, source: str, status: int) -> None:
    assert guest.exit_status is None
    with pytest.raises(PeerClosed):
        load(guest, source)
    assert guest.exit_status == status


@pytest.mark.parametrize("source", ["raise SystemExit(0)", "raise KeyboardInterrupt", "import sys; sys.exit('bye')"])
def test_no_exception_ends_a_guest(guest: ProcessGuest, source: str) -> None:
    assert load(guest, source)["failure"]["kind"] == "build"
    assert ask(guest, {"do": "ping"})["ok"]


def test_a_candidate_that_spins_is_killed(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    with pytest.raises(TimeoutError):
        load(guest, "while True: pass", timeout_s=0.3)
    assert alive(guest.pid)
    guest.kill()
    assert not alive(guest.pid)
    assert guest.exit_status is None  # by us, not by itself


def test_a_child_that_ignores_signals_dies_with_the_group(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    assert load(guest, STUBBORN_CHILD)["ok"]
    child = child_of(guest)
    os.kill(child, signal.SIGTERM)
    assert alive(child)
    guest.kill()
    assert gone([child])


def test_what_a_guest_leaves_behind_when_it_ends_dies_too(guest: ProcessGuest) -> None:
    assert load(guest, STUBBORN_CHILD)["ok"]
    child = child_of(guest)
    with pytest.raises(PeerClosed):
        load(guest, "import os; os._exit(0)")
    assert guest.exit_status == 0
    assert gone([child])


def child_of(guest: ProcessGuest) -> int:
    assert eventually(lambda: "child " in guest.log)
    return known_as(int(re.findall(r"child (\d+)", guest.log)[0]), guest)


def test_the_environment_has_no_secret(guest: ProcessGuest) -> None:
    source = (
        "import os, pathlib\n"
        "own = pathlib.Path('/proc/self/environ').read_text()\n"
        "try:\n"
        "    parent = pathlib.Path(f'/proc/{os.getppid() or 1}/environ').read_text()\n"
        "except PermissionError as error:\n"
        "    parent = error\n"
        "raise ValueError(repr((dict(os.environ), own, parent)))"
    )
    told = load(guest, source)["failure"]["message"]
    assert "PATH" in told
    assert SECRET not in told
    assert "OPENAI" not in told


def test_a_guest_works_in_a_folder_of_its_own_that_goes_with_it(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    source = "import os, tempfile\nraise ValueError('|'.join([os.getcwd(), os.environ['HOME'], tempfile.gettempdir()]))"
    folders = set(load(guest, source)["failure"]["message"].removeprefix("ValueError: ").split("|"))
    assert len(folders) == 1
    folder = Path(folders.pop())
    assert folder.is_dir()
    guest.kill()
    assert not folder.exists()


def test_limits_hold(guest: ProcessGuest) -> None:
    source = (
        "import resource\n"
        "names = ('CORE', 'FSIZE', 'NOFILE')\n"
        "raise ValueError([resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in names])"
    )
    told = load(guest, source)["failure"]["message"]
    assert told == f"ValueError: {[(0, 0), (1 << 30, 1 << 30), (1024, 1024)]}"
    assert load(guest, "x = bytearray(1 << 40)")["failure"]["kind"] == "memory"
    assert load(guest, "import torch\nx = torch.empty(1 << 40)")["failure"]["kind"] == "memory"


def test_pause_and_resume(guest: ProcessGuest) -> None:
    guest.pause()
    guest.post({"do": "ping"})
    with pytest.raises(TimeoutError):
        guest.answer(0.2)
    assert guest.stopped() == Stopped(), "told when it goes on"
    guest.resume()
    assert guest.answer(5)["ok"]
    assert guest.stopped().seconds > 0.2
    assert guest.stopped().worked_s == 0


WAKES_ITSELF = """
import ctypes, signal, threading, time
signal.signal(signal.SIGCONT, lambda *_: None)
libc = ctypes.CDLL(None)
timer = ctypes.c_void_p()
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("how", ctypes.c_int), ("p", ctypes.c_char * 48)]
event = Event(None, signal.SIGCONT, 0)
assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
every = (ctypes.c_long * 4)(0, 5_000_000, 0, 5_000_000)
assert libc.timer_settime(timer, 0, every, None) == 0
def burn():
    while True: pass
threading.Thread(target=burn, daemon=True).start()
class ModelNew: ...
"""


def test_one_that_wakes_itself_is_seen_to_work(guest: ProcessGuest) -> None:
    assert load(guest, WAKES_ITSELF)["ok"]
    for _ in range(3):
        guest.pause()
        time.sleep(0.1)
        guest.resume()
    assert guest.stopped().worked_s > 0.015, "of 0.3 s, on a machine that others use; a tick is 0.01 s"


def test_a_paused_guest_can_be_killed(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    guest.pause()
    guest.kill()
    assert not alive(guest.pid)


@pytest.mark.parametrize(
    "said",
    ["b'\\xff\\xff\\xff\\xff'", "b'GET / HTTP/1.1\\r\\n\\r\\n'", "b'\\0\\0\\0\\x0b{\"ok\":true}' * 2"],
    ids=["a length", "a request", "two answers"],
)
def test_a_candidate_that_writes_on_the_socket_itself_breaks_the_protocol(sandbox: ProcessSandbox, said: str) -> None:
    source = (
        "import os, stat\n"
        "for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "    if os.path.lexists(f'/proc/self/fd/{fd}') and stat.S_ISSOCK(os.fstat(fd).st_mode):\n"
        f"        os.write(fd, {said})\n"
        "while True: pass"
    )
    hostile, fresh = Session(sandbox.start(), None), Session(sandbox.start(), None)
    with pytest.raises(Rejected, match="broke the protocol") as caught:
        load_twice(hostile, source)
    assert caught.value.outcome is Outcome.CRASHED
    hostile.close()
    load_twice(fresh, SCALE)
    fresh.close()


def load_twice(session: Session, source: str) -> None:
    for _ in range(2):
        session.load(Candidate(source=source, language=Language.CPP), Arithmetic.FP32)


def test_starting_and_killing_leaks_no_descriptor(sandbox: ProcessSandbox) -> None:
    sandbox.start().kill()
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        sandbox.start().kill()
    assert set(os.listdir("/proc/self/fd")) <= before  # what a test before left may just be closed


# ---- ends ------------------------------------------------------------------------------------------------------------


def test_close_leaves_no_process_and_no_folder(sandbox: ProcessSandbox) -> None:
    """The last test with this sandbox."""
    guest = sandbox.start()
    assert load(guest, STUBBORN_CHILD)["ok"]
    zygote = zygote_of(sandbox)
    pids = {zygote, guest.pid, child_of(guest)}
    folder = home_of(zygote)
    assert folder.is_dir()
    sandbox.close()
    assert gone(pids)
    assert not folder.exists()


def test_without_its_zygote_a_sandbox_is_unavailable(spare: ProcessSandbox) -> None:
    guest = spare.start()
    zygote = zygote_of(spare)
    below = descendants(zygote)
    assert guest.pid in below
    os.kill(zygote, signal.SIGKILL)
    assert gone([zygote, *below])
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with pytest.raises(SandboxUnavailable, match="agentgen doctor"):
            spare.start()
    assert set(os.listdir("/proc/self/fd")) <= before  # the end of a log that was read may just be closed
    with pytest.raises(SandboxUnavailable):
        guest.kill()


def test_killing_the_owner_ends_everything(owner: subprocess.Popen[str], kind: Isolation) -> None:
    assert owner.stdout
    guest = int(owner.stdout.readline())

    def all_of_it() -> set[int]:
        # A container's processes are children of the engine's.
        return {parent_of(guest), *descendants(parent_of(guest)), *descendants(owner.pid)}

    # Zygote, guest, the candidate's child; of a jail also who founds them, process 1 of this one and of the next.
    expected = 6 if kind is Isolation.JAIL else 3
    assert eventually(lambda: len(all_of_it()) == expected)
    pids = all_of_it()
    assert guest in pids
    owner.kill()
    owner.wait()
    assert gone(pids)


def zygote_of(sandbox: ProcessSandbox) -> int:
    return sandbox._zygote.pid  # pyright: ignore[reportPrivateUsage]
