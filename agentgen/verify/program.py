"""The judge as a program: `python -m agentgen.verify.program --channel FD --device cpu|cuda:N`. One process per device.

It imports no torch before it knows what is wanted: where that is a judge on a CPU, the guests' zygote starts first, and
both import it side by side (1.4 s of the 4 that it takes until a judge is open, on two cores). On a GPU the zygote is
told the architecture, which only torch knows.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
from typing import Any

from agentgen.errors import PeerClosed, SandboxUnavailable
from agentgen.records.run import Isolation
from agentgen.sandbox.guest.limits import die_with_parent
from agentgen.sandbox.process import ProcessSandbox
from agentgen.sandbox.wire import Channel


def main() -> None:
    """Entry of the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--device", required=True)
    arguments: Any = parser.parse_args()
    die_with_parent()
    channel = Channel(socket.socket(fileno=arguments.channel))
    try:
        first, _ = channel.receive()
    except PeerClosed:
        return
    ahead: ProcessSandbox | None = None
    if first["do"] == "open" and arguments.device == "cpu" and first["isolation"] != Isolation.DOCKER:
        with contextlib.suppress(SandboxUnavailable):  # the judge will try, and say so
            ahead = ProcessSandbox("cpu", isolation=Isolation(first["isolation"]))
    from agentgen.verify.server import Server

    Server(channel, arguments.device, ahead).run(first)


if __name__ == "__main__":
    main()
