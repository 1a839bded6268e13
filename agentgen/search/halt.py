"""Why nothing more is sent to a model or begun on a device; what is under way comes to its end."""

from __future__ import annotations

from dataclasses import dataclass

from agentgen.errors import AgentgenError


@dataclass
class Halt:
    """Shared by all that a walk does."""

    failure: AgentgenError | None = None
    """The first one, of a model or of the machine."""

    def at(self, failure: AgentgenError) -> None:
        """Notes a failure."""
        self.failure = self.failure or failure
