"""The judge's side of a gate, with a thread in the place of the kernels."""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from agentgen.sandbox.guest.gate import DONE, GO, HERE, PAGE_BYTES
from agentgen.sandbox.guest.window import Shot
from agentgen.verify import clock
from agentgen.verify.clock import OPEN_ANYWAY_S, OwnGate, Page


class Words:
    """The page as a GPU sees it."""

    def __init__(self, fd: int, arch: str = "") -> None:
        self._map = mmap.mmap(fd, PAGE_BYTES)

    def read(self, word: int) -> int:
        return struct.unpack_from("=i", self._map, 4 * word)[0]

    def write(self, word: int, value: int) -> None:
        struct.pack_into("=i", self._map, 4 * word, value)


@pytest.fixture
def page() -> Iterator[Page]:
    one = Page()
    yield one
    one.close()


def aside(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def spin(words: Words, shot: int) -> None:
    """Waits at the gate."""
    while words.read(GO) != shot:
        time.sleep(0.0002)


def test_the_time_is_from_the_opening_to_the_mark(page: Page) -> None:
    shot, words = page.next_shot(), Words(page.fd)

    def kernels() -> None:
        words.write(HERE, shot)
        spin(words, shot)
        time.sleep(0.1)
        words.write(DONE, shot)

    thread = aside(kernels)
    page.wait_here(shot, 5)
    assert 0.1 <= page.open_and_time(shot, 5) < 0.4
    thread.join()
    assert page.marked(shot)


def test_calls_that_never_end_are_not_waited_for_without_end(page: Page) -> None:
    shot, words = page.next_shot(), Words(page.fd)
    thread = aside(lambda: spin(words, shot))
    with pytest.raises(TimeoutError, match="did not reach 1 within"):
        page.open_and_time(shot, 0.05)
    thread.join()
    assert not page.marked(shot)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> list[Words]:
    """The page of the judge's own gate, once there is one."""
    made: list[Words] = []

    def gate(fd: int, arch: str) -> Words:
        made.append(Words(fd, arch))
        return made[0]

    monkeypatch.setattr(clock, "Gate", gate)
    return made


def test_work_that_waits_for_the_device_is_not_kept_behind_the_gate(words: list[Words]) -> None:
    def queue(shot: Shot) -> Callable[[], float]:
        words[0].write(HERE, shot.number)
        spin(words[0], shot.number)  # as a model that synchronises: it queues nothing more before the gate is open
        time.sleep(0.1)
        words[0].write(DONE, shot.number)
        return lambda: 0.1

    start = time.perf_counter()
    seconds = OwnGate("sm_90a").seconds(queue)
    assert 0.1 <= seconds <= time.perf_counter() - start - OPEN_ANYWAY_S


def test_work_that_fails_leaves_no_gate_closed(words: list[Words]) -> None:
    def queue(shot: Shot) -> Callable[[], float]:
        words[0].write(HERE, shot.number)
        raise MemoryError

    with pytest.raises(MemoryError):
        OwnGate("sm_90a").seconds(queue)
    assert words[0].read(GO) == words[0].read(HERE)
