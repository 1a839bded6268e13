"""What the judge asks of a sandbox, whichever it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from agentgen.sandbox.kin import Kin, Stopped


class Guest(Protocol):
    """One process group that holds one candidate."""

    @property
    def pid(self) -> int:
        """Of the process that serves, as the judge's own system counts."""
        ...

    @property
    def scratch(self) -> Path:
        """The folder it works in, as the judge sees it."""
        ...

    def post(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Sends a command.

        Raises:
            ProtocolError: the guest is gone.
            TimeoutError: it does not read.
        """
        ...

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """Waits for the answer to the last command: a claim.

        Raises:
            TimeoutError: no answer in time; it may still come.
            ProtocolError: the guest is gone, or what it sent is no message.
        """
        ...

    def pause(self) -> None:
        """Stops every process of the guest until `resume`."""
        ...

    def resume(self) -> None:
        """Lets them go on."""
        ...

    def kin(self) -> Kin:
        """Returns what other processes it has.

        Raises:
            OSError: the guest is gone.
        """
        ...

    def stopped(self) -> Stopped:
        """Returns how long it was paused, and what processor time it used meanwhile."""
        ...

    def samples(self) -> Counter[str] | None:
        """Returns where its processor time went since the last call: samples by file of the running code, by the word
        of the kernel. None where it gives none."""
        ...

    def forget_samples(self) -> None:
        """Drops what `samples` would return now."""
        ...

    def kill(self) -> None:
        """Ends the whole process group and waits until it is gone."""
        ...

    @property
    def exit_status(self) -> int | None:
        """Exit code, negative for a signal; None while it lives or if it was killed by us."""
        ...

    @property
    def starved(self) -> str | None:
        """What memory it may have, in words, if the kernel has ended a process of it that wanted more; to be asked
        before `kill`."""
        ...

    @property
    def log(self) -> str:
        """The end of what it wrote to stdout and stderr. For people."""
        ...


class Sandbox(Protocol):
    """Starts guests on one device."""

    def wait_until_warm(self) -> None:
        """Returns when `start` is quick and the warm-up takes no more processor time from whoever measures.

        Raises:
            SandboxUnavailable: it never will be.
        """
        ...

    @property
    def isolation(self) -> str:
        """What guests are kept in, in words; begins with "none" where it is nothing."""
        ...

    def start(self, name: str = "", built: Path | None = None) -> Guest:
        """Starts a guest.

        Args:
            name: Guests of the same name that live at the same time share a scratch folder, and so the caches of their
                compilers: what the first has built the others find. To be that of one candidate's guests.
            built: A cache of its compilers from elsewhere, which is moved here.

        Raises:
            SandboxUnavailable: none can be started; no candidate's fault.
        """
        ...

    def hand_over(self, built: Path, scratch: Path) -> None:
        """Moves a cache of compilers to a guest that lives already."""
        ...

    def close(self) -> None:
        """Ends everything that was started."""
        ...
