"""One exchange with a language model."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from agentgen.records.base import Record, content_hash


class Role(StrEnum):
    """What a request asks for."""

    IDEAS = "ideas"
    WRITE = "write"
    REPAIR = "repair"
    REFINE = "refine"
    """A faster version of a whole program, without an idea in words before it."""


class ChatRequest(Record):
    """Everything a model is told. The text needs no other document.

    `role`, `target` and `parent` are what a recorded reply is found by.
    """

    role: Role
    problem: str
    target: str
    """The language to write in; for ideas, which come before any language, the device type."""
    parent: str
    """Content hash of what the answer builds on: root or candidate (ideas, refine), idea (write), failed candidate
    (repair)."""
    nth: int = 0
    """Counts what was asked for before on the same parent: ideas of earlier rounds, implementations that failed."""
    system: str
    prompt: str
    attempt: int = 0
    """Counts the times the same thing was asked because the answer was of no use."""
    round: int = 0
    """Of the run that asks; no part of the identity. 0: not known."""

    @cached_property
    def id(self) -> str:
        """Hash of the place in the tree, not of the words: a prompt may hold times, which differ in every run."""
        return self._id_of(self.attempt)

    @cached_property
    def first_id(self) -> str:
        """Id of the first attempt, which is what the model that answers all of them is chosen by."""
        return self._id_of(0)

    def _id_of(self, attempt: int) -> str:
        place = "request", self.role.value, self.problem, self.target, self.parent, attempt
        return content_hash(*place, self.nth) if self.nth else content_hash(*place)  # recordings know those without


class Fault(StrEnum):
    """Why a reply may be of no use, by itself and before anybody read it."""

    LENGTH = "length"
    """It ran into a limit of output tokens or of the context."""
    BROKEN = "broken"
    """The connection ended before the reply did."""
    REFUSED = "refused"
    """The model would not answer."""
    FILTERED = "filtered"
    """The server withheld it."""
    EMPTY = "empty"
    """Nothing was said."""


class ChatReply(Record):
    """What the model said, as it came."""

    text: str
    model: str
    """Who answered, as the ledger and the leaderboard name it."""
    reasoning: str = ""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the input, those that the server had read before."""
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    """Of the output, those of reasoning."""
    cost_usd: float | None = None
    """None: price not known. Never 0 for that."""
    seconds: float | None = None
    finish_reason: str | None = None
    """In the server's words."""
    fault: Fault | None = None
    """Part of an answer may be there all the same."""
