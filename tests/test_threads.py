"""A thread of one's own: one thing after another, always the same thread."""

from __future__ import annotations

import threading
import time

import pytest

from agentgen.threads import Hand, end


def test_things_are_done_in_order_by_one_thread_that_is_not_ours() -> None:
    hand, seen = Hand("test"), list[int]()

    def work(number: int) -> int:
        seen.append(number)
        return threading.get_ident()

    futures = [hand.do(lambda number=number: work(number)) for number in range(50)]
    threads = {future.result() for future in futures}
    assert seen == list(range(50))
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    end([hand], 5)


def test_what_is_raised_is_told_and_the_next_is_done() -> None:
    hand = Hand("test")
    failed, done = hand.do(lambda: 1 // 0), hand.do(lambda: 2)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert done.result() == 2
    end([hand], 5)


def test_those_that_hang_are_left_behind_together() -> None:
    hands, release = [Hand("test") for _ in range(20)], threading.Event()
    hanging = [hand.do(release.wait) for hand in hands]
    begun = time.monotonic()
    end(hands, 0.2)
    assert time.monotonic() - begun < 0.2 * len(hands), "one wait for all"
    assert not any(future.done() for future in hanging)
    release.set()
    assert all(future.result(5) for future in hanging)
