"""The next candidate's first guest, started on a GPU while another candidate is checked: CUDA takes 0.16 s to begin in
a process, and nobody waits for that any more.

It holds no candidate, stands idle while others are timed or instrumented (an idle context costs 0.1% to 0.6% on an
H200, as much as two guests differ by), and whatever is wrong with it shows as a guest that is started in its place.
"""

from __future__ import annotations

import contextlib
from itertools import count
from pathlib import Path

from agentgen.errors import MachineFailure
from agentgen.sandbox.protocol import Guest, Sandbox
from agentgen.verify.clock import Page
from agentgen.verify.findings import Rejected
from agentgen.verify.session import Session


def session_of(guest: Guest, page: Page | None) -> Session:
    """Returns a session with a fresh guest; nothing is left of either where that fails.

    Raises:
        SandboxUnavailable: the guest was gone before it was used.
    """
    try:
        return Session(guest, page)
    except MachineFailure:
        if page:
            page.close()
        guest.kill()
        raise


class Spare:
    """At most one guest ahead."""

    def __init__(self, sandbox: Sandbox, *, wanted: bool) -> None:
        """Takes where guests come from, and whether any is worth starting ahead: not on a CPU."""
        self._sandbox = sandbox
        self._wanted = wanted
        self._numbers = count()
        self._name = ""
        self._session: Session | None = None
        self._settled = False

    def begin(self) -> None:
        """Starts one, unless one is there. The device is settled later: nothing is to be timed before `settle`."""
        if not self._wanted or self._session:
            return
        self._name = f"ahead-{next(self._numbers)}"
        with contextlib.suppress(MachineFailure, Rejected):
            self._session, self._settled = session_of(self._sandbox.start(self._name), Page()), False
            self._session.begin_open()

    def settle(self) -> None:
        """Waits until it is idle, and drops one that fails."""
        if self._session and not self._settled:
            try:
                self._session.await_open()
                self._settled = True
            except Rejected:
                self.drop()

    def take(self, built: Path | None) -> tuple[Session, str] | None:
        """Returns it, if there is one and it lives, with its name in the sandbox, and moves a cache of compilers to
        it."""
        self.settle()
        if self._session and not self._session.alive():
            self.drop()
        session, self._session = self._session, None
        if session is None:
            return None
        if built:
            self._sandbox.hand_over(built, session.guest.scratch)
        return session, self._name

    def drop(self) -> None:
        """Ends it."""
        session, self._session = self._session, None
        if session:
            with contextlib.suppress(MachineFailure):
                session.close()
