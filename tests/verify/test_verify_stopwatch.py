"""What copying a set of outputs takes of processor time, by copies that are made here."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from statistics import mean

from verify_guests import rig_of
from verify_problems import small_conv

from agentgen.records.problem import Workload
from agentgen.verify.rig import Rig
from agentgen.verify.stopwatch import Stopwatch

LARGE = Workload(name="large", constants={"batch": 300})
"""Its output is 8.6 MB."""
TINY = Workload(name="tiny", constants={"batch": 1, "size": 3})
"""Its output is 32 bytes."""


def least_s(rig: Rig) -> float:
    watch = Stopwatch(rig, None)
    return min(watch.copying_s(2) for _ in range(7))


@contextmanager
def one_crowded_processor() -> Generator[None]:
    """Has this thread share its processor with three others at work."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        for process in busy:
            process.kill()
            process.wait()


def test_time_in_which_others_have_the_processor_is_not_counted() -> None:
    with rig_of(small_conv(), LARGE) as rig:
        watch = Stopwatch(rig, None)
        with one_crowded_processor():
            processor_s = mean(watch.copying_s(2) for _ in range(50))
            clock_s = watch.seconds(watch.bare_copy(), 100) / 100
    assert clock_s > 1.4 * processor_s > 0, "a quarter of the processor was ours: 1.9 to 4 times as long by the clock"


def test_calling_from_python_is_no_copying() -> None:
    buffer = (ctypes.c_char * 32)()
    with rig_of(small_conv(), TINY) as rig:
        tiny_s = least_s(rig)
    calls, start = 1000, time.thread_time()
    for _ in range(calls):
        ctypes.memmove(buffer, buffer, 0)
    assert tiny_s < 0.5 * (time.thread_time() - start) / calls


def test_what_torch_copies_is_not_looked_for_in_c_s_library() -> None:
    with rig_of(small_conv(), LARGE) as rig:
        by_c_s = least_s(rig)
        rig.reference = replace(rig.reference, output_strides=((7200, 1, 240, 8),))
        assert least_s(rig) < 0.01 * by_c_s
