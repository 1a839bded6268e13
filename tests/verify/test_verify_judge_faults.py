"""Candidates that hang, fall, or use up all they can get hold of: each has its outcome, nothing of it is left, and the
next honest candidate of the same judge is accepted.

Segfaults, aborts, exits and refused memory in Python are in test_verify_judge.py, what becomes of a judge whose zygote
or orchestrator is killed in workers/test_workers_faults.py, GPUs in test_verify_faults_gpu.py.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from verify_problems import REFERENCE, cpp_source, edited_kernel, small_conv

from agentgen.errors import SandboxUnavailable
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, OwnWork
from agentgen.records.run import Effort
from agentgen.records.trial import Outcome, Trial
from agentgen.verify import session
from agentgen.verify.evaluation import evaluate
from agentgen.verify.judge import Judge

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH"),
]

HONEST = REFERENCE.replace("class Model(", "class ModelNew(")
FAULTS = edited_kernel(
    "#include <cstdint>",
    r"""
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static void* wait_for_ever(void*) { for (;;) pause(); }
static char* volatile held;
static char text[1 << 20];

extern "C" void spin(float* y) { for (volatile float* at = y;;) *at = 1; }
extern "C" void fall(float* y) { *(volatile char*)(held) = 1; }
extern "C" void give_up(float* y) { abort(); }
extern "C" void hoard(float* y) { for (;;) held = new char[1 << 28]; }
extern "C" void stop(float* y) { raise(SIGSTOP); }
extern "C" void hang_up(float* y) {
  struct stat seen;
  for (int fd = 3; fd < 1024; fd++)
    if (!fstat(fd, &seen) && S_ISSOCK(seen.st_mode)) close(fd);
  wait_for_ever(0);
}
extern "C" void multiply(float* y) {  // no more than 256 processes, half of them in sessions of their own
  pid_t own = getpid();
  for (int i = 0; i < 8; i++)
    if (!fork() && i % 2) setsid();
  wait_for_ever(0);
}
extern "C" void swarm(float* y) {
  pthread_t thread;
  for (int i = 0; i < 10000; i++)
    if (pthread_create(&thread, 0, wait_for_ever, 0)) abort();
}
extern "C" void flood(float* y) {
  memset(text, 'x', sizeof text);
  for (int i = 0; i < 2048; i++)
    for (long left = sizeof text; left > 0;) left -= write(1 + i % 2, text, left);
}
""",
)
NEST = """
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
os.chmod("..", 0)
raise ValueError("deep")
"""
FILL = """
size = 0
with open("{path}", "wb") as file:
    while True:
        size += 1 << 26
        os.posix_fallocate(file.fileno(), 0, size)
"""


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this process keeps what is temporary."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture(scope="module")
def judge(temporary: Path) -> Iterator[Judge]:
    one = Judge(small_conv(OwnWork.LIBRARY), "cpu", Arithmetic.FP32, Effort.QUICK)
    assert evaluated(one, HONEST).outcome is Outcome.PASSED
    yield one
    one.close()
    assert list(temporary.iterdir()) == []


@pytest.fixture(autouse=True)
def _nothing_is_left_and_the_next_is_accepted(  # pyright: ignore[reportUnusedFunction]
    judge: Judge, temporary: Path
) -> Iterator[None]:
    before = there(temporary)
    yield
    after = evaluated(judge, HONEST)
    assert after.outcome is Outcome.PASSED, after.reasons
    deadline = time.monotonic() + 5
    while there(temporary) != before and time.monotonic() < deadline:
        time.sleep(0.05)  # the end of a log is read by a thread of its own
    assert there(temporary) == before


def there(temporary: Path) -> tuple[object, ...]:
    """Returns what a candidate could leave behind: processes, threads, descriptors, files."""
    descriptors = {name: link(Path("/proc/self/fd") / name) for name in os.listdir("/proc/self/fd")}
    everybody = below(os.getpid())
    ahead = {pid for pid in everybody if is_first(pid)}  # of the next guest's jail, another one for each guest
    processes = everybody - ahead, len(ahead) <= 1
    return processes, threading.active_count(), descriptors, sorted(temporary.rglob("*"))


def below(pid: int) -> set[int]:
    """Returns all processes below `pid`."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_first(pid: int) -> bool:
    """Whether a process is process 1 of a namespace of its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # gone meanwhile
        return False
    return any(line.startswith("NSpid:") and line.split()[2:] == ["1"] for line in lines)


def link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:  # it was that of this listing
        return ""


def nothing(_: str) -> None:
    """Nobody watches."""


def evaluated(judge: Judge, source: str, watch: Callable[[str], None] = nothing, *, timing: bool = False) -> Trial:
    return evaluate(judge, Candidate(source=source, language=Language.CPP), watch, timing=timing)


def faulty(judge: Judge, forward: str) -> Trial:
    return evaluated(judge, cpp_source(forward, FAULTS))


def refused(trial: Trial, outcome: Outcome, said: str) -> None:
    assert trial.outcome is outcome, trial.reasons
    assert said in "\n".join(trial.reasons)


# ---- no answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forward", ["while True: pass", "lib.spin(x)", "lib.stop(x)"], ids=["Python", "C++", "SIGSTOP to itself"]
)
def test_a_call_that_never_ends(judge: Judge, monkeypatch: pytest.MonkeyPatch, forward: str) -> None:
    monkeypatch.setattr(session, "FIRST_CALL_S", 1.0)
    refused(faulty(judge, forward), Outcome.TIMED_OUT, "no answer to window within 1 s")


def test_a_text_that_never_ends(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "BUILD_S", 1.0)
    refused(evaluated(judge, f"{HONEST}\nwhile True: pass"), Outcome.TIMED_OUT, "no answer to load within 1 s")


def test_closing_its_socket(judge: Judge) -> None:
    refused(faulty(judge, "lib.hang_up(x)"), Outcome.CRASHED, "the guest closed its socket")


# ---- falls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "signal"), [("lib.fall(x)", "SIGSEGV"), ("lib.give_up(x)", "SIGABRT")], ids=["segfault", "abort"]
)
def test_falls_in_c(judge: Judge, forward: str, signal: str) -> None:
    refused(faulty(judge, forward), Outcome.CRASHED, f"ended by {signal}")


# ---- all that it can get ---------------------------------------------------------------------------------------------


def test_memory_until_it_is_refused(judge: Judge) -> None:
    forward = "kept = []\nwhile True: kept.append(torch.empty(1 << 26))"
    refused(faulty(judge, forward), Outcome.OUT_OF_MEMORY, "allocate")


def test_memory_until_it_is_refused_in_c(judge: Judge) -> None:
    """bad_alloc, which nobody catches."""
    refused(faulty(judge, "lib.hoard(x)"), Outcome.CRASHED, "ended by SIGABRT")


def test_where_memory_runs_out_the_kernel_ends_a_guest_and_not_the_judge(judge: Judge) -> None:
    forward = "raise ValueError(open('/pr' + 'oc/self/oom_score_adj').read())"
    refused(faulty(judge, forward), Outcome.CRASHED, "ValueError: 1000")
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 1000


def test_processes_that_multiply(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "FIRST_CALL_S", 4.0)
    most: list[int] = []
    watching = threading.Event()

    def count() -> None:
        while not watching.wait(0.5):
            most.append(len(below(os.getpid())))

    thread = threading.Thread(target=count)
    thread.start()
    trial = faulty(judge, "lib.multiply(x)")
    watching.set()
    thread.join()
    refused(trial, Outcome.TIMED_OUT, "no answer to window")
    assert max(most) > 200, "they were there"


def test_threads_until_they_are_refused(judge: Judge) -> None:
    refused(faulty(judge, "lib.swarm(x)"), Outcome.CRASHED, "ended by SIGABRT")


def test_a_file_until_it_is_refused(judge: Judge) -> None:
    refused(faulty(judge, FILL.format(path="full")), Outcome.CRASHED, "File too large")


def test_folders_in_folders_without_end(judge: Judge) -> None:
    """`shutil.rmtree` calls itself for each level: up to Python 3.11 it can raise RecursionError."""
    refused(faulty(judge, NEST), Outcome.CRASHED, "ValueError: deep")


def test_gigabytes_of_output(judge: Judge) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trial = faulty(judge, "lib.flood(x)\nraise ValueError('said')")
    refused(trial, Outcome.CRASHED, "ValueError: said")
    assert "x" * 1000 in trial.log
    assert len(trial.log) < 10_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "in KiB"


# ---- no candidate's fault --------------------------------------------------------------------------------------------


def test_a_guest_for_which_there_are_no_descriptors(judge: Judge) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        with pytest.raises(SandboxUnavailable, match=r"no guest can be started: .*Too many open files"):
            judge.guests.first(Candidate(source=HONEST, language=Language.CPP))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
