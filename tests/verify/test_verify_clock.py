"""The judge's side of a gate, with a thread in the place of the kernels."""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from agentgen.sandbox.guest.gate import DONE, GO, HERE, PAGE_BYTES
from agentgen.verify.clock import Page


class Words:
    """The page as a GPU sees it."""

    def __init__(self, page: Page) -> None:
        self._map = mmap.mmap(page.fd, PAGE_BYTES)

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
    shot, words = page.next_shot(), Words(page)

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
    shot, words = page.next_shot(), Words(page)
    thread = aside(lambda: spin(words, shot))
    with pytest.raises(TimeoutError, match="did not reach 1 within"):
        page.open_and_time(shot, 0.05)
    thread.join()
    assert not page.marked(shot)
