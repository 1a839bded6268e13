"""Why a kernel was refused, in words that stay the same wherever and whenever that happens again.

Not covered: two faults behind one check. Wrong values are told apart by how they are wrong alone (`how_wrong`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from agentgen.records.problem import Problem, Workload
from agentgen.records.trial import Outcome, Trial

_LONGEST: Final = 160
"""Characters of a reason: a compiler quotes whole types, and what comes first says what is wrong."""
_TAKEN_OUT: Final = (
    (re.compile(r"(?<![\w.])~?(?:/[\w.+@-]+){2,}"), "PATH"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "N"),
    (re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{7,}\b"), "N"),  # an id or a hash
    (re.compile(r"(?<!\w)\d+(?:\.\d+)*(?:e[+-]?\d+)?"), "N"),  # not of a name: float32, sm_90
    (
        re.compile(r"\bN(?:[,:x] ?(?:N|\d+))+"),
        "N",
    ),  # a shape has more or fewer, and a place in a file line and column
)
_ERROR: Final = re.compile(r"\b(?:error|fatal)\b[^:]{0,12}:")
"""As NVRTC, ptxas and g++ begin one. Their last line is a caret, or "Ptx assembly aborted due to errors"."""
_WHEN_TIMED: Final = "timed"
"""The one place of a check that is no workload."""
_NORMAL: Final = "normal"
"""The family of values that torch.randn draws."""
_ROUNDED: Final = 1e-2
"""Relative L2 error that rounding alone may cause: that to bf16, the coarsest, is 2e-3."""


def plain_reason(reasons: Sequence[str]) -> str:
    """Returns the first line of the first reason without numbers, addresses, ids and paths; where that line only says
    what was refused, with the first error below it, or the last line: Triton's compiler shows the source in between."""
    lines = next((found for reason in reasons if (found := _lines(reason))), [""])
    text = lines[0]
    if text.endswith(":") and lines[1:]:
        text += " " + next((line for line in lines[1:] if _ERROR.search(line)), lines[-1])
    for pattern, word in _TAKEN_OUT:
        text = pattern.sub(word, text)
    return text[:_LONGEST]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def failed_checks(trial: Trial, problem: Problem) -> tuple[str, ...]:
    """Returns the checks that failed, without the workloads at which they did."""
    places = {_WHEN_TIMED, *(workload.name for workload in _workloads(problem))}
    return _distinct(_anywhere(check.name, places) for check in trial.checks if check.passed is False)


def how_wrong(trial: Trial, problem: Problem) -> str | None:
    """Returns what kind of wrong values a trial found, since rounding is another fault than a wrong index; None where
    its figures do not say: of other outcomes, or of values that were wrong only while timed.

    - "in less precision": within the gates of a lower arithmetic everywhere, as single TF32 products are for fp32.
    - "not exact": off by rounding, and only where torch is exact, as on {0,1} integers, and nothing may be off at all.
    - "not zero where torch is": in rows of which the oracle is zero as a whole, and nowhere else.
    - "wrong": anything else.

    All but the second end with ", normal values right" where that is so at each workload that missed a gate: a test
    with torch.randn passes there. A product of split fp16 halves was off by 5 times torch on sorted values alone.
    """
    places = {workload.name for workload in _workloads(problem)}
    looked_at = [row for row in trial.accuracy if row.workload in places and row.gated]
    missed = [row for row in looked_at if row.share_of_limit > 1]
    # Rows of zeros have no size that an error could be a share of.
    failed = {row.family for row in looked_at if row.share_of_limit > 1 or row.reached is None}
    if trial.outcome is not Outcome.WRONG_VALUES or not failed:
        return None
    rounded = (row.gate == 0.0 and row.relative_l2 is not None and row.relative_l2 < _ROUNDED for row in missed)
    if missed and trial.accuracy_class is None and all(rounded):
        return "not exact"
    how = "wrong" if trial.accuracy_class is None else "in less precision"
    how = how if missed else "not zero where torch is"
    return how if _NORMAL in failed else f"{how}, normal values right"


def cause_of(
    problem: str, language: str, outcome: Outcome, by: Sequence[str], reason: str, how: str | None = None
) -> str:
    """Returns a cause: by its first check that failed, with how it did (`how_wrong`) where that is known, or, where
    none did by name, by its plain reason."""
    why = by[0] if by else reason
    return f"{problem}, {language}: {outcome.value}, {f'{why}, {how}' if by and how else why}"


def _workloads(problem: Problem) -> Sequence[Workload]:
    return *problem.workloads, *problem.smaller, *problem.neighbours


def _anywhere(check: str, places: Collection[str]) -> str:
    name, _, place = check.rpartition(": ")
    return name if name and place in places else check


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
