"""A faulty server for each test that wants one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fault_server import Answer, FaultServer

Serve = Callable[..., FaultServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers that answer by a script."""
    running: list[FaultServer] = []

    def start(*script: Answer) -> FaultServer:
        running.append(FaultServer(*script))
        return running[-1]

    yield start
    for server in running:
        server.close()
