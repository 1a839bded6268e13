"""Idea: an optimisation in plain words, before any code. First-class: it survives the failure of its code."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final

from pydantic import Field

from agentgen.records.base import Record, content_hash

PREREQUISITES: Final = 8
PREREQUISITE_CHARACTERS: Final = 200
"""As many as a title may have."""


class Category(StrEnum):
    """What kind of optimisation an idea is (the six of Stanford's kernel search)."""

    MEMORY_ACCESS = "memory access"
    ASYNCHRONY = "asynchrony and latency hiding"
    PRECISION = "data type and precision"
    COMPUTE = "compute and instructions"
    PARALLELISM = "parallelism and occupancy"
    CONTROL_FLOW = "control flow and loops"


class Idea(Record):
    """One optimisation idea. Its identity is its words and its parent, not the run it came from."""

    parent: str
    """Content hash of the candidate it improves on, or of the problem's root."""
    category: Category
    title: str = Field(min_length=3, max_length=200)
    reasoning: str = Field(min_length=1)
    prerequisites: tuple[Annotated[str, Field(min_length=1, max_length=PREREQUISITE_CHARACTERS)], ...] = Field(
        default=(), max_length=PREREQUISITES
    )
    """What must hold of the problem, the device or the parent for it to work. No part of the identity: recorded ideas
    have none."""
    predicted_speedup: float | None = Field(default=None, gt=0)
    """Over its parent, as the model predicts before anything is written."""
    same_as: str | None = None
    """The known idea that it repeats: it is kept, and not implemented again."""

    @cached_property
    def id(self) -> str:
        """Content hash."""
        return content_hash("idea", self.parent, self.category.value, self.title, self.reasoning)

    @property
    def explained(self) -> str:
        """The reasoning and, below it, what the idea needs."""
        if not self.prerequisites:
            return self.reasoning
        return "\n".join((self.reasoning, "", "Prerequisites:", *(f"- {one}" for one in self.prerequisites)))


class Gain(Record):
    """A speedup over the kernel that an idea was had on, with its 95% interval."""

    ratio: float
    low: float
    high: float


class Became(Record):
    """What became of an idea so far, to be set beside what was predicted of it."""

    candidates: int
    """Implementations and repairs."""
    gain: Gain | None = None
    """Of its best implementation. None: nothing passed, or it or its parent was not timed."""
    failure: str | None = None
    """Outcome and first reason of the last candidate, of an idea of which none passed."""
