"""The deciding clocks. Both are read by the judge, in the judge.

On a GPU the gate (`sandbox.guest.gate`): the calls are queued behind a spinning kernel, the judge opens it and watches
for the mark. On a CPU the wall time from the command to the answer, at a number of calls that makes the 0.1 ms of the
socket small.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable
from threading import Timer

from agentgen.errors import DeviceLost
from agentgen.sandbox.guest.gate import DONE, GO, HERE, MAX_WAIT_MS, PAGE_BYTES, Gate
from agentgen.sandbox.guest.window import Shot
from agentgen.verify.shared import sealed_memory

_WORD = struct.Struct("=i")
OPEN_ANYWAY_S = 0.25
"""A model that synchronises in its forward, or has more launches than a queue holds, can never queue all its calls
behind a closed gate: after this long the gate is opened all the same, and its host time counts. Without it a reference
with a Cholesky factorisation waited for 30 s in each of its windows, until the gate opened by itself."""
COME_BACK_S = 0.25e-3
"""What the judge does while a gate spins has the GPU taken from it, and given back when the judge is done: opened at
once, a window had 0.1 ms of that in it (identical code came out 1.2% slower than itself on an H200). No word of the
guest's says when it is back: one that is slow to say so would have all that time to work on inputs that it sees."""


class Page:
    """The judge's view of the words that a gate and a mark write."""

    def __init__(self) -> None:
        self.fd = sealed_memory("agentgen-gate", PAGE_BYTES)
        self._map = mmap.mmap(self.fd, PAGE_BYTES)
        self._shot = 0

    def next_shot(self) -> int:
        """Returns a number that no earlier window used."""
        self._shot += 1
        return self._shot

    def wait_here(self, shot: int, timeout_s: float) -> None:
        """Waits until the gate kernel runs.

        Raises:
            TimeoutError: it did not start.
        """
        self._wait(HERE, shot, timeout_s)

    def open_and_time(self, shot: int, timeout_s: float) -> float:
        """Opens the gate; returns the seconds until the mark.

        Raises:
            TimeoutError: no mark in time.
        """
        return self.time(shot, self.open(shot), timeout_s)

    def open(self, shot: int) -> float:
        """Opens the gate; returns when that was, by `time.perf_counter`."""
        start = time.perf_counter()
        _WORD.pack_into(self._map, 4 * GO, shot)
        return start

    def time(self, shot: int, start: float, timeout_s: float) -> float:
        """Returns the seconds from `start` until the mark.

        Raises:
            TimeoutError: no mark in time.
        """
        self._wait(DONE, shot, timeout_s)
        return time.perf_counter() - start

    def marked(self, shot: int) -> bool:
        """Whether the mark is there."""
        return _WORD.unpack_from(self._map, 4 * DONE)[0] == shot

    def release(self) -> None:
        """Opens the gate, without a clock, of whatever window is still closed."""
        _WORD.pack_into(self._map, 4 * GO, self._shot)

    def close(self) -> None:
        """Unmaps the page."""
        os.close(self.fd)

    def _wait(self, word: int, value: int, timeout_s: float) -> None:
        offset = 4 * word
        deadline = time.perf_counter() + timeout_s
        while _WORD.unpack_from(self._map, offset)[0] != value:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"the gate's word {word} did not reach {value} within {timeout_s:.1f} s")


def let_come_back() -> None:
    """Waits until the GPU is with whoever waits at a closed gate. Sleeping is not exact enough."""
    back = time.perf_counter() + COME_BACK_S
    while time.perf_counter() < back:
        pass


class OwnGate:
    """The judge's own gate: for work that it queues itself. Its words are none that a guest can write."""

    def __init__(self, arch: str) -> None:
        self._page = Page()
        self._gate = Gate(self._page.fd, arch)

    def seconds(self, queue: Callable[[Shot], Callable[[], float]], timeout_s: float = 60.0) -> float:
        """Times work: `queue(shot)` closes the gate, queues, marks. Work that waits for the device meanwhile, or has
        more launches than a queue holds, is timed from `OPEN_ANYWAY_S` after the gate was closed.

        Raises:
            DeviceLost: the device does not come to the mark.
        """
        shot, page = self._page.next_shot(), self._page
        opened: list[float] = []
        anyway = Timer(OPEN_ANYWAY_S, lambda: opened.append(page.open(shot)))
        anyway.start()
        try:
            finish = queue(Shot(self._gate, shot))
        except BaseException:
            page.open(shot)  # or whoever waits for the device next would wait until the gate opens by itself
            raise
        finally:
            anyway.cancel()
            anyway.join()
        try:
            page.wait_here(shot, MAX_WAIT_MS / 1e3)
            seconds = page.time(shot, opened[0], timeout_s) if opened else page.open_and_time(shot, timeout_s)
        except TimeoutError as error:
            raise DeviceLost(f"the judge's own work did not finish: {error}") from error
        finish()
        return seconds
