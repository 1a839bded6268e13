"""Who serves the candidates of one judge: fresh guests, each started when it is wanted or, where that saves waiting,
ahead (`builder`, `spare`)."""

from __future__ import annotations

from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Isolation
from agentgen.sandbox.process import ProcessSandbox
from agentgen.sandbox.protocol import Sandbox
from agentgen.verify.builder import Builder
from agentgen.verify.clock import Page
from agentgen.verify.session import Session
from agentgen.verify.spare import Spare, session_of


class Guests:
    """The sandboxes that guests come from. One candidate is judged at a time."""

    def __init__(self, sandbox: Sandbox, arch: str | None, isolation: Isolation) -> None:
        """Takes over a sandbox of the device.

        Args:
            sandbox: Where guests come from.
            arch: The GPU's architecture; None on a CPU.
            isolation: What the other sandboxes' guests are to be kept in.
        """
        self.kept_in = isolation
        self._sandbox = sandbox
        self._on_gpu = arch is not None
        self._interpreter: Sandbox | None = None
        self._builder = Builder(arch, isolation) if arch else None
        self.spare = Spare(sandbox, wanted=self._on_gpu)
        self._name = ""
        """Of the guests of the candidate that is judged, in their sandbox."""

    def wait_until_warm(self) -> None:
        """Waits until starting a guest is quick and takes no more processor time from whoever measures."""
        self._sandbox.wait_until_warm()

    @property
    def isolation(self) -> str:
        """What guests are kept in, in words."""
        return self._sandbox.isolation

    def build_ahead(self, candidate: Candidate, arithmetic: Arithmetic) -> None:
        """Has the next candidate built while this one is judged, where that disturbs nobody."""
        if self._builder:
            self._builder.begin(candidate, arithmetic)

    def first(self, candidate: Candidate, *, interpreted: bool = False) -> Session:
        """Returns a fresh guest for a candidate that has none: the one that was started ahead, if there is one.

        Raises:
            SandboxUnavailable: none can be started.
        """
        self._name = candidate.id
        if interpreted:
            return self.another(interpreted=True)
        built = self._builder.take(candidate) if self._builder else None
        if taken := self.spare.take(built):
            session, self._name = taken
            return session
        return session_of(self._sandbox.start(self._name, built), self._page())

    def another(self, *, interpreted: bool = False) -> Session:
        """Starts a fresh guest beside or after the first of the same candidate, in Triton's interpreter if asked."""
        if interpreted:
            self._interpreter = self._interpreter or ProcessSandbox("cpu", interpret=True, isolation=self.kept_in)
            return session_of(self._interpreter.start(self._name), None)
        return session_of(self._sandbox.start(self._name), self._page())

    def _page(self) -> Page | None:
        return Page() if self._on_gpu else None

    def close(self) -> None:
        """Ends all guests."""
        self.spare.drop()
        for one in (self._sandbox, self._interpreter, self._builder):
            if one:
                one.close()
