"""What kind of end a candidate came to: its colour and its shape, so that neither is needed alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agentgen.records.score import Score
from agentgen.records.trial import Outcome, Trial


@dataclass(frozen=True, slots=True)
class Family:
    """Outcomes that look alike."""

    name: str
    """In classes and in the URL."""
    title: str
    shape: str
    """An SVG path around 0, 0, about 14 units wide."""


_RING = "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0"

FASTER: Final = Family("faster", "accepted, faster", _RING)
ACCEPTED: Final = Family("accepted", "accepted", _RING)
WRONG: Final = Family("wrong", "wrong", "M-6-3l3-3 3 3 3-3 3 3-3 3 3 3-3 3-3-3-3 3-3-3 3-3z")
BUILD: Final = Family("build", "does not build", "M0-7l7 12.5h-14z")
BROKE: Final = Family("broke", "crashed, too slow or too big", "M-5.5-5.5h11v11h-11z")
REFUSED: Final = Family("refused", "cheated or screened out", "M0-7l7 7-7 7-7-7z")
OPEN: Final = Family("open", "not evaluated", _RING)

FAMILIES: Final = (FASTER, ACCEPTED, WRONG, BUILD, BROKE, REFUSED, OPEN)

_OF: Final = {
    Outcome.PASSED: ACCEPTED,
    Outcome.SCREENED_OUT: REFUSED,
    Outcome.BUILD_FAILED: BUILD,
    Outcome.CRASHED: BROKE,
    Outcome.TIMED_OUT: BROKE,
    Outcome.OUT_OF_MEMORY: BROKE,
    Outcome.WRONG_SHAPE: WRONG,
    Outcome.WRONG_DTYPE: WRONG,
    Outcome.WRONG_VALUES: WRONG,
    Outcome.NONDETERMINISTIC: WRONG,
    Outcome.CHEATED: REFUSED,
    Outcome.NOT_RUN: OPEN,
}


def family(found: Trial | Score | None) -> Family:
    """Returns the family of a candidate by what was found; None: it was not evaluated."""
    if found is None:
        return OPEN
    return FASTER if found.speedup and found.speedup.faster else _OF[found.outcome]
