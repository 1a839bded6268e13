"""Runs a search's coroutines, and ends them where the search is interrupted.

With task groups of asyncio, not of anyio: those (4.16) wrap each coroutine in one of their own, and where a task is
cancelled before it has begun, as an interrupt may have it, Python warns that the inner one was never awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Runs a coroutine to its end; what fails in its tasks is raised as itself, not in a group of one.

    An interrupt (KeyboardInterrupt) may hit inside a task as well as between two. No task takes another step then, and
    nothing is written about how they ended: that is for faults.
    """
    tasks: list[asyncio.Task[T]] = []

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        return await work()

    with asyncio.Runner() as runner:
        try:
            return runner.run(main())
        except KeyboardInterrupt:
            _end({*tasks, *asyncio.all_tasks(runner.get_loop())}, runner.get_loop())
            raise
        except BaseExceptionGroup as group:
            first: BaseException = group
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            raise first from None


def _end(tasks: set[asyncio.Task[T]], loop: asyncio.AbstractEventLoop) -> None:
    for task in tasks:
        task.cancel()
    with suppress(KeyboardInterrupt):  # a group hands on what one of its tasks was interrupted by, when all have ended
        loop.run_until_complete(asyncio.wait(tasks))
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # has been seen, then
