"""The zygote's program as a sandbox starts and ends it; here as a process beside the judge."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from agentgen.sandbox.wire import Channel, pair

END_S = 5.0


class Zygote(Protocol):
    """A running zygote, as its sandbox holds it."""

    @property
    def channel(self) -> Channel:
        """To it."""
        ...

    @property
    def pid(self) -> int:
        """Of it, where the judge runs."""
        ...

    def here(self, pid: int) -> int:
        """Returns the id that a child of it has where the judge runs, given the one that it knows itself.

        Raises:
            ProtocolError: it has no such child.
        """
        ...

    def isolation(self, jail: str) -> str:
        """Returns what guests are kept in, given what it says of their jails."""
        ...

    def end(self) -> None:
        """Hangs up, and waits until it is gone."""
        ...


class ZygoteProcess:
    """One that runs as a process of the judge's own system."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Starts it; the channel is named at the end of its command."""
        self.channel, theirs = pair()
        self._process = subprocess.Popen(
            [*command, "--channel", str(theirs.fileno())],
            env=variables,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid
        theirs.close()

    def here(self, pid: int) -> int:
        """The same."""
        return pid

    def isolation(self, jail: str) -> str:
        """As it says."""
        return jail

    def end(self) -> None:
        """It ends by itself when nobody is there any more."""
        self.channel.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
