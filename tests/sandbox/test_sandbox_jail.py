"""What walls keep from a candidate, and what they must leave it: a jail, a container. A real zygote, real guests."""

from __future__ import annotations

import ast
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_processes import WALLED, descendants, eventually, family_of, firsts, gone, opened

from agentgen.errors import SandboxUnavailable
from agentgen.records.run import Isolation
from agentgen.sandbox.forked import ProcessGuest
from agentgen.sandbox.process import ProcessSandbox

ROOT = Path(__file__).parents[2]
LOOK = """
import ctypes, glob, os, resource, socket, subprocess, sys
def attempt(call):
    try:
        return str(call())
    except OSError as error:
        return type(error).__name__
def opened():
    for fd in range(1024):
        if os.path.lexists(f"/proc/self/fd/{fd}"):
            yield f"{fd} {os.readlink(f'/proc/self/fd/{fd}').split(':')[0]}"
said = EXPRESSION
raise ValueError("said " + repr(said))
"""
HONEST = '''
import os, subprocess, tempfile
import torch
from agentgen import jit

lib = jit.cpp("""
extern "C" int sum(const int* x, int n) {
  int total = 0;
  #pragma omp parallel for reduction(+ : total)
  for (int i = 0; i < n; ++i) total += x[i];
  return total;
}
""")
x = torch.arange(1000, dtype=torch.int32)
open("note", "w").write("mine")
with tempfile.NamedTemporaryFile() as file:
    file.write(b"mine")
words = subprocess.run(["sh", "-c", "echo words > /dev/null; echo words; cat note"], capture_output=True, text=True)
shared = os.open("/dev/shm/mine", os.O_CREAT | os.O_RDWR)
import wave  # a module that nobody has imported yet
import torch.distributions
raise ValueError("said " + repr((lib.sum(x, 1000), words.stdout, words.stderr)))
'''


@pytest.fixture(scope="module", params=WALLED)
def kind(request: pytest.FixtureRequest) -> Isolation:
    return Isolation(request.param)


@pytest.fixture(scope="module")
def sandbox(kind: Isolation) -> Iterator[ProcessSandbox]:
    one = opened(kind)
    yield one
    one.close()


@pytest.fixture
def guest(sandbox: ProcessSandbox) -> Iterator[ProcessGuest]:
    one = sandbox.start("of this test")
    yield one
    one.kill()


def said_by(guest: ProcessGuest, source: str) -> Any:
    guest.post({"do": "load", "source": source, "arithmetic": "fp32"})
    message = guest.answer(60)["failure"]["message"]
    assert "said " in message, message
    return ast.literal_eval(message.partition("said ")[2])


def seen(guest: ProcessGuest, expression: str) -> Any:
    return said_by(guest, LOOK.replace("EXPRESSION", expression))


def test_it_holds_no_descriptor_but_its_own(guest: ProcessGuest) -> None:
    assert seen(guest, "list(opened())[:3]") == ["0 /dev/null", "1 pipe", "2 pipe"]
    assert [entry.split()[1] for entry in seen(guest, "list(opened())[3:]")] == ["socket"]
    assert seen(guest, "open('/dev/stderr', 'w').write('words') and os.path.ismount('/tmp')") is True
    assert eventually(lambda: "words" in guest.log)


def test_its_process_1_cannot_be_harmed(guest: ProcessGuest) -> None:
    assert seen(guest, "[attempt(lambda: os.kill(1, number)) for number in (2, 15, 9)]")
    assert seen(guest, "attempt(lambda: open('/proc/1/mem', 'r+b'))") == "PermissionError"


def test_a_child_in_its_own_session_dies_with_a_guest_whatever_it_does(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    seen(guest, "os.fork() or (os.setsid(), [__import__('time').sleep(60) for _ in range(9)])")
    (child,) = family_of(guest)
    guest.kill()
    assert gone([child])


def test_a_jail_that_was_founded_ahead_and_is_lost_is_founded_anew(sandbox: ProcessSandbox, kind: Isolation) -> None:
    if kind is not Isolation.JAIL:
        pytest.skip("nothing is founded ahead")
    sandbox.start().kill()
    zygote = sandbox._zygote.pid  # pyright: ignore[reportPrivateUsage]
    assert eventually(lambda: len(firsts(zygote)) == 1)
    (ahead,) = firsts(zygote)
    os.kill(ahead, signal.SIGKILL)
    assert gone([ahead])
    guest = sandbox.start()
    assert seen(guest, "os.getpid()") == 2
    guest.kill()


def test_a_jail_that_was_founded_ahead_holds_nothing_of_who_lived_then(
    sandbox: ProcessSandbox, kind: Isolation
) -> None:
    if kind is not Isolation.JAIL:
        pytest.skip("nothing is founded ahead")
    zygote = sandbox._zygote.pid  # pyright: ignore[reportPrivateUsage]
    former = sandbox.start("former")
    assert eventually(lambda: len(firsts(zygote)) == 2)
    seen(former, "[open(f'{folder}/mine', 'w').close() for folder in ('/tmp', '/dev/shm', os.getcwd())]")
    former.kill()
    guest = sandbox.start("next")
    there = "[os.path.lexists(path) for path in ('/tmp/mine', '/dev/shm/mine', os.getcwd() + '/mine')]"
    assert seen(guest, there) == [False] * 3
    assert seen(guest, f"os.path.lexists({str(former.scratch)!r})") is False
    guest.kill()


def test_a_judge_without_what_founds_jails_is_unavailable_and_harms_nobody() -> None:
    sandbox = opened(Isolation.JAIL)
    try:
        guest = sandbox.start()
        zygote = sandbox._zygote.pid  # pyright: ignore[reportPrivateUsage]
        assert eventually(lambda: len(firsts(zygote)) == 2), "the next one's is founded"
        (jailer,) = descendants(zygote) - family_of(guest) - firsts(zygote) - {guest.pid}
        os.kill(jailer, signal.SIGKILL)
        assert gone([jailer])
        assert seen(guest, "1 + 1") == 2
        guest.kill()
        sandbox.start().kill()  # in the jail that is there
        with pytest.raises(SandboxUnavailable, match="what founds jails does not answer"):
            sandbox.start()
    finally:
        sandbox.close()


def test_what_it_is_made_of_is_told(sandbox: ProcessSandbox, kind: Isolation) -> None:
    of_it = {Isolation.JAIL: "namespaces, ", Isolation.DOCKER: "Docker: no network, read-only, "}[kind]
    assert sandbox.isolation.startswith(of_it)
    assert "no capabilities, seccomp, " in sandbox.isolation


def test_an_honest_candidate_misses_nothing(guest: ProcessGuest) -> None:
    assert said_by(guest, HONEST) == (499500, "words\nmine", "")


def test_it_has_no_rights(guest: ProcessGuest) -> None:
    fields = "[line.split()[1:] for line in open('/proc/self/status') if line.startswith(NAMES)]"
    names = "('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')"
    assert seen(guest, fields.replace("NAMES", names)) == [["0" * 16]] * 5
    assert seen(guest, fields.replace("NAMES", "('NoNewPrivs', 'Seccomp:')")) == [["1"], ["2"]]
    if os.geteuid() == 0:
        ids = "{*os.getresuid(), *os.getresgid(), *os.getgroups()}"
        assert seen(guest, ids) == {65534}


def test_it_sees_no_processes_but_its_own(guest: ProcessGuest, kind: Isolation) -> None:
    visible = seen(guest, "sorted(int(pid) for pid in os.listdir('/proc') if pid.isdigit())")
    assert visible == [1, 2] if kind is Isolation.JAIL else len(visible) == 2, "process 1 waits for it, or forked it"
    assert seen(guest, f"attempt(lambda: os.kill({os.getpid()}, 0))") in {"ProcessLookupError", "PermissionError"}


def test_it_cannot_reach_into_processes(guest: ProcessGuest) -> None:
    reach = """[ctypes.CDLL(None).ptrace(16, 1, 0, 0), ctypes.CDLL(None).process_vm_writev(1, 0, 0, 0, 0, 0),
        attempt(lambda: open('/proc/1/mem', 'r+b')), attempt(lambda: open('/proc/1/environ', 'rb').read())]"""
    ptrace, written, memory, _ = seen(guest, reach)
    assert (ptrace, written) == (-1, -1)
    assert memory == "PermissionError"


def test_there_is_no_network(guest: ProcessGuest) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert seen(guest, f"attempt(lambda: socket.create_connection({server.getsockname()}))") == "PermissionError"
    assert seen(guest, "attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))") == "PermissionError"
    assert seen(guest, "[line.split()[0] for line in open('/proc/net/dev')][2:]") == ["lo:"]


def test_what_is_the_user_s_is_not_there(guest: ProcessGuest, tmp_path: Path) -> None:
    secret = tmp_path / "agentgen.db"
    secret.write_text("secret")
    secret.chmod(0o666)
    hidden = [str(secret), str(ROOT / "problems"), str(ROOT / "results"), str(ROOT / "tests"), "/etc/shadow", "/var"]
    assert seen(guest, f"[path for path in {hidden} if os.path.lexists(path)]") == []
    assert seen(guest, "[entry for entry in glob.glob(os.path.expanduser('~root/.*')) if 'pyenv' not in entry]") == []
    here, environment = str(ROOT), Path(sys.prefix)  # which may lie in the checkout
    kept = {"agentgen", *(environment.relative_to(ROOT).parts[:1] if environment.is_relative_to(ROOT) else ())}
    assert set(seen(guest, f"[name for name in os.listdir({here!r})]")) == kept


def test_it_writes_nowhere_but_in_its_folder(guest: ProcessGuest) -> None:
    places = [
        "/x",
        "/usr/x",
        "/sys/fs/cgroup/x",
        str(ROOT / "agentgen" / "x"),
        "/dev/x/y",
        "/proc/sys/kernel/core_pattern",
    ]
    assert set(seen(guest, f"[attempt(lambda: open(path, 'w')) for path in {places}]")) <= {
        *("PermissionError", "OSError", "FileNotFoundError")
    }


def test_candidates_do_not_see_each_other(sandbox: ProcessSandbox, guest: ProcessGuest, kind: Isolation) -> None:
    if kind is Isolation.DOCKER:
        pytest.skip("in one container those that live at the same time see each other's scratch folder")
    other = sandbox.start("another")
    try:
        assert seen(other, f"os.path.exists({str(guest.scratch)!r})") is False
        assert seen(other, f"os.listdir({str(guest.scratch.parent)!r})") == [other.scratch.name]
    finally:
        other.kill()


def test_guests_of_one_candidate_share_a_folder(sandbox: ProcessSandbox, guest: ProcessGuest) -> None:
    second = sandbox.start("of this test")
    try:
        seen(guest, "open('built', 'w').write('once')")
        assert seen(second, "open('built').read()") == "once"
    finally:
        second.kill()


def test_new_namespaces_and_mounts_are_refused(guest: ProcessGuest) -> None:
    calls = "[ctypes.CDLL(None).unshare(0x10000000), ctypes.CDLL(None).mount(b'none', b'/dev/shm', b'tmpfs', 0, None)]"
    assert seen(guest, calls) == [-1, -1]


def test_a_bomb_of_processes_has_an_end(guest: ProcessGuest) -> None:
    assert seen(guest, "resource.getrlimit(resource.RLIMIT_NPROC)[1] <= 4096") is True


def test_without_it_guests_are_plain_processes() -> None:
    sandbox = ProcessSandbox("cpu", isolation=Isolation.NONE)
    try:
        assert sandbox.isolation.startswith("none: plain processes; ")
        guest = sandbox.start()
        assert seen(guest, "os.getuid()") == os.getuid()
        guest.kill()
    finally:
        sandbox.close()
