"""Candidate: one kernel's source."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Final

from agentgen.records.base import Record, content_hash
from agentgen.records.problem import DeviceType

SHORT_ID: Final = 8
"""Hex digits of a candidate's id that people see; 32 bits tell apart the candidates of any run."""
_CHANGE: Final = "# Change:"
_LONGEST: Final = 200
"""Characters of what a source says that it changed: as many as an idea's title may have."""


class Language(StrEnum):
    """What a candidate's kernels are written in. Every candidate is one Python file defining `ModelNew`."""

    TRITON = "triton"
    CUDA = "cuda"
    CPP = "cpp"


DEFAULT_LANGUAGES: dict[DeviceType, tuple[Language, ...]] = {
    "cuda": (Language.TRITON, Language.CUDA),
    "cpu": (Language.CPP,),
}


class Candidate(Record):
    """One Python file that defines `ModelNew`, with the way it came about."""

    source: str
    language: Language
    idea: str | None = None
    """The idea it implements; None for a file given by the user."""
    parent: str | None = None
    """The candidate it was made from: the idea's parent, or, for a repair, the failing candidate."""
    repair: int = 0
    """How many repairs lie between the first implementation of the idea and this one."""

    @cached_property
    def id(self) -> str:
        """Content hash of source, language and idea: the same code for another idea is another candidate."""
        return content_hash("candidate", self.source, self.language.value, self.idea)

    @cached_property
    def change(self) -> str | None:
        """What the source says of itself in a line `# Change: ...` before its imports, as a program without an idea in
        words is asked to, cut where it is long; None where it says nothing."""
        for line in self.source.split("\n"):
            if line.startswith(("import ", "from ")):
                return None
            if line.startswith(_CHANGE):
                text = " ".join(line.removeprefix(_CHANGE).split())
                return (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…") or None
        return None
