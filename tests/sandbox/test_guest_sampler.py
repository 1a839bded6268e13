"""Processor time is seen where it is spent, and the process is left as it was."""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from agentgen import jit
from agentgen.sandbox.guest import sampler
from agentgen.sandbox.guest.sampler import sampling

SPIN_MS = 200
SPIN = """
#include <time.h>
extern "C" double spin(int ms) {
    timespec now;
    double x = 1.0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const double end = now.tv_sec * 1e3 + now.tv_nsec / 1e6 + ms;
    do {
        for (int i = 0; i < 1000000; i++) x = x * 1.0000001 + 1e-9;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec * 1e3 + now.tv_nsec / 1e6 < end);
    return x;
}
"""


@pytest.fixture(scope="module", name="spin")
def _spin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], float]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("candidate")))
        try:
            library = jit.cpp(SPIN)
        except RuntimeError as error:
            pytest.skip(str(error))
        yield library.spin


def share_of(seen: dict[str, int], part: str) -> float:
    return sum(n for name, n in seen.items() if part in name) / max(1, sum(seen.values()))


def test_a_kernel_s_time_lies_in_its_library(spin: Callable[[int], float]) -> None:
    with sampling(True) as seen:
        spin(SPIN_MS)
    assert sum(seen.values()) >= SPIN_MS / 20  # 100 a second; the tick gives 250
    assert share_of(seen, "/candidate0/agentgen/jit/") > 0.8


def test_torch_s_time_lies_in_torch() -> None:
    x, threads = torch.rand(100_000), torch.get_num_threads()
    y = torch.empty_like(x)
    torch.set_num_threads(1)  # others would spin, in libgomp
    end = time.process_time() + SPIN_MS / 1e3
    with sampling(True) as seen:
        while time.process_time() < end:
            torch.exp(x, out=y)  # of 10,000 elements 49% were seen there, beside the dispatch of a call
    torch.set_num_threads(threads)
    assert share_of(seen, "/libtorch_cpu.so") > 0.5


def test_all_threads_count(spin: Callable[[int], float]) -> None:
    thread = threading.Thread(target=spin, args=(SPIN_MS,))
    with sampling(True) as seen:
        thread.start()
        thread.join()
    assert sum(seen.values()) >= SPIN_MS / 20
    assert share_of(seen, "/candidate0/agentgen/jit/") > 0.8


def test_waiting_is_no_processor_time() -> None:
    with sampling(True) as seen:
        time.sleep(0.1)
    assert sum(seen.values()) <= 5


def test_nothing_is_sampled_unless_asked(spin: Callable[[int], float]) -> None:
    with sampling(False) as seen:
        spin(20)
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert seen == {}


def fail_while_sampling() -> None:
    with sampling(True):
        assert signal.getitimer(signal.ITIMER_PROF)[1] > 0
        raise ZeroDivisionError


def test_the_timer_is_off_and_the_old_handler_back_after_a_failure_too() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGPROF, lambda number, _: came.append(number))
    try:
        with pytest.raises(ZeroDivisionError):
            fail_while_sampling()
        assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
        signal.raise_signal(signal.SIGPROF)
        assert came == [signal.SIGPROF]
    finally:
        signal.signal(signal.SIGPROF, before)


def in_a_child(work: Callable[[], bool]) -> int:
    """Returns how a forked child ended that does `work`: 0 if that was true."""
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_late_signal_does_not_end_the_process(spin: Callable[[int], float]) -> None:
    def work() -> bool:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
        with sampling(True) as seen:
            spin(50)
            was_pending = signal.SIGPROF in signal.sigpending()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
        return was_pending and seen == {}

    assert in_a_child(work) == 0


def test_without_a_compiler_nothing_is_seen(tmp_path: Path) -> None:
    def work() -> bool:
        os.environ.update(PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
        alone = importlib.reload(sampler)
        alone.warm_up()
        with alone.sampling(True) as seen:
            sum(range(1_000_000))
        return seen == {}

    assert in_a_child(work) == 0
