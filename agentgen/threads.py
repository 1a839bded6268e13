"""A thread that does what it is given, one thing after another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Hand:
    """A thread of its own for things that must always be done by the same one: the kernel ends a judge's program when
    the thread that started it ends.

    A daemon, unlike those of `concurrent.futures`: a program that was interrupted does not wait for one that waits.
    """

    def __init__(self, name: str) -> None:
        """Starts the thread; `name` is for debuggers."""
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[[], T]) -> Future[T]:
        """Has `work` called when all that was given before is done; the future holds what it returns or raises."""
        future: Future[T] = Future()

        def done() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                found = work()
            except BaseException as error:  # noqa: BLE001  (whoever asks for the result gets it, whatever it is)
                future.set_exception(error)
            else:
                future.set_result(found)

        self._inbox.put(done)
        return future

    def ends(self) -> None:
        """Has the thread end once all that was given is done."""
        self._inbox.put(None)

    def join(self, timeout_s: float) -> None:
        """Waits until it has ended, but no longer than that."""
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while work := self._inbox.get():
            work()


def end(hands: Iterable[Hand], timeout_s: float) -> None:
    """Ends threads once all that they were given is done; those that take longer than `timeout_s` are left behind."""
    ending = tuple(hands)
    for hand in ending:
        hand.ends()
    deadline = time.monotonic() + timeout_s
    for hand in ending:
        hand.join(max(0.0, deadline - time.monotonic()))
