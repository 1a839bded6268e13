"""The judge as a program: `python -m agentgen.verify.program --channel FD --device cpu|cuda:N`. One process per device.

It imports no torch before it knows what is wanted: where that is a judge, the guests' zygote starts first, and both
import torch side by side (1.4 s of the 4 that it takes until a judge is open, on two cores).
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import socket
import sys
from typing import Any

from agentgen.errors import PeerClosed, SandboxUnavailable
from agentgen.records.run import Isolation
from agentgen.sandbox.guest.limits import die_with_parent
from agentgen.sandbox.process import ProcessSandbox
from agentgen.sandbox.wire import Channel
from agentgen.verify.architecture import architecture


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
    arch = architecture(arguments.device)
    here = arguments.device == "cpu" or arch is not None
    if first["do"] in {"prepare", "open"} and here and first["isolation"] != Isolation.DOCKER:
        with contextlib.suppress(SandboxUnavailable):  # the judge will try, and say so
            ahead = ProcessSandbox(arguments.device, arch, isolation=Isolation(first["isolation"]))
    from agentgen.verify.server import Server

    Server(channel, arguments.device, ahead).run(first)
    # The interpreter's own end takes 0.7 s with torch and a context in it, and whoever hung up waits for that.
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
