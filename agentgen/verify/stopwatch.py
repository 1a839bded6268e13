"""The judge's stopwatch: windows that run in this process, the baselines' and the bare copy's, and how long and how
many they are to be."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from agentgen.sandbox.guest.memory import reset_persisting_cache
from agentgen.sandbox.guest.window import copy_bytes, run_window
from agentgen.verify.baselines import Call
from agentgen.verify.clock import OwnGate
from agentgen.verify.rig import Rig

FEWEST_PAIRS = 5


@dataclass(frozen=True)
class Schedule:
    """How long and how often."""

    window_s: float
    pairs: int
    max_calls: int
    race_s: float
    """A slow candidate gets fewer pairs, but `FEWEST_PAIRS`: its interval is wide and its verdict clear."""
    shortest_s: float = math.inf
    """Of a window that ends with the last input set, before any comes twice; shorter ones go on to `window_s`."""

    def calls(self, call_us: float, sets: int) -> int:
        """Returns the calls of a window for a kernel of that time, over so many input sets."""
        wanted = math.ceil(1e6 * self.window_s / max(call_us, 0.1))
        if sets < wanted and 1e-6 * sets * call_us >= self.shortest_s:
            return sets
        return max(1, min(self.max_calls, wanted))

    def pairs_of(self, pair_us: float) -> int:
        """Returns how many pairs of windows of that time to run."""
        return max(min(FEWEST_PAIRS, self.pairs), min(self.pairs, int(1e6 * self.race_s / pair_us)))


GPU = Schedule(window_s=6e-3, pairs=21, max_calls=200, race_s=1.0)
"""The gate is right to 0.2% in 4 ms; 200 calls of up to 4 launches stay under the queue's 1,000."""
CPU = Schedule(window_s=40e-3, pairs=9, max_calls=20_000, race_s=3.0, shortest_s=20e-3)
"""A command and its answer take 0.5-1 ms, 2% of 40 ms; a call from Python takes 3 us and more. In one window of three
both of a guest's threads begin on one core of two, for up to 20 ms: a conv2d that was 2.15 times as fast as torch in
windows of 60 ms was 1.88 times as fast in such of 25. Where no input comes twice, what the check "every call counts"
does in eight more windows is not needed."""
NEAR_GPU = replace(GPU, window_s=3e-3, pairs=5, race_s=0.3)
NEAR_CPU = replace(CPU, window_s=20e-3, pairs=3, race_s=1.0, shortest_s=10e-3)
"""For neighbouring shapes: how special a kernel is shows in halves and doubles, not in per cents."""


class Stopwatch:
    """Times windows that run in this process: the baselines and the bare copy."""

    def __init__(self, rig: Rig, own: OwnGate | None, *, near: bool = False) -> None:
        """Takes the rig to time at, the judge's own gate on a GPU, and whether it is a neighbour."""
        self.rig = rig
        self.schedule = (NEAR_GPU if near else GPU) if own else (NEAR_CPU if near else CPU)
        self._own = own

    def calls(self, call_us: float) -> int:
        """Returns the calls of a window for a kernel of that time, at this rig."""
        return self.schedule.calls(call_us, self.rig.sets)

    def warm(self, call: Call) -> None:
        """Has `call` compile and autotune; not behind a gate, where whatever waits for the device would wait for it.
        Three calls, because CUDA graphs are recorded at the second."""
        run_window(call, self.rig.private, self.rig.outputs, 3, keep=copy_bytes)()

    def seconds(self, call: Call, calls: int, first: int = 0) -> float:
        """Returns the time of one window of `call` over the rig's sets, from `first` on, output copies included."""

        # The judge's own copies: a guest can write to what it shares (denormals would slow a baseline).
        inputs = self.rig.private[first:] + self.rig.private[:first]
        outputs = self.rig.outputs[first:] + self.rig.outputs[:first]
        if self._own is None:
            start = time.perf_counter()
            run_window(call, inputs, outputs, calls, keep=copy_bytes)
            return time.perf_counter() - start
        reset_persisting_cache()  # what a guest had the cache hold on to is not to be missing here
        return self._own.seconds(lambda shot: run_window(call, inputs, outputs, calls, shot, copy_bytes))

    def bare_copy(self) -> Call:
        """Returns a call that computes nothing: what its window takes is the copying of one set of outputs, n times."""
        ready = [y.clone() for y in self.rig.outputs[0]]
        return lambda *_: ready

    def copying_s(self, calls: int) -> float:
        """Returns the processor time that copying a set of outputs takes, on a CPU: of such as the runner of a guest
        copies by C's library, over the sets that a window of so many calls comes to, and without the time of a call
        from Python."""
        rig = self.rig
        rows, ready = rig.outputs[: min(calls, rig.sets)], rig.snapshot(0)
        by_c = [i for i, strides in enumerate(rig.reference.output_strides) if strides is None]
        copies = [(row[i].data_ptr(), ready[i].data_ptr(), ready[i].nbytes) for row in rows for i in by_c]
        nothing = [(target, source, 0) for target, source, _ in copies]
        nothing_s = min(_copying_s(nothing) for _ in range(3))  # one interrupt is as long as many of them
        return max(0.0, _copying_s(copies) - nothing_s) / len(rows)

    def copy_us(self, calls: int) -> float:
        """Returns the median time of copying one set of outputs, as every window does."""
        copy = self.bare_copy()
        return 1e6 * median([self.seconds(copy, calls) for _ in range(5)]) / calls

    def quiet_us(self, baselines: Mapping[str, Call]) -> dict[str, float]:
        """Returns each baseline's median, before any guest exists: nobody can have slowed it."""
        times: dict[str, float] = {}
        for name, call in baselines.items():
            self.warm(call)
            calls = self.calls(1e6 * self.seconds(call, 2) / 2)
            copy_us = self.copy_us(calls)
            samples = [net_us(1e6 * self.seconds(call, calls) / calls, copy_us) for _ in range(7)]
            times[name] = sorted(samples)[3]
        return times


def net_us(gross_us: float, copy_us: float) -> float:
    """Returns a call's time without the copy; noise in the copy of a tiny kernel must not make it zero or less."""
    return max(gross_us - copy_us, 0.01 * gross_us)


def _copying_s(copies: Sequence[tuple[int, int, int]]) -> float:
    start = time.thread_time()
    for target, source, size in copies:
        ctypes.memmove(target, source, size)
    return time.thread_time() - start
