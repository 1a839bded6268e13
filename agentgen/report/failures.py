"""Past failures for people and programs: which there are by cause, and what became of those that were tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from agentgen.records.candidate import SHORT_ID
from agentgen.report.layout import table
from agentgen.report.table import first_reason
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import About, Solve
from agentgen.scoring.failures import Failure, Refused
from agentgen.scoring.faults import fault
from agentgen.scoring.promoted import Keys

Causes = Mapping[str, Sequence[Failure]]


def causes_table(causes: Causes, known: Keys) -> RenderableType:
    """Returns a row for each cause, with the first failure of it as its example."""
    shown = table(None, "", "cause", "example", "run", "reason", "promoted", right=("",), wrap=("cause", "reason"))
    for cause, failures in causes.items():
        example = failures[0]
        shown.add_row(
            str(len(failures)),
            Text(cause),
            _candidate(example)[:SHORT_ID],
            example.run.id,
            Text(_reason(example)[:200]),
            Text(" and ".join(_promoted(cause, known))),
        )
    count = sum(map(len, causes.values()))
    promoted = sum(bool(_promoted(cause, known)) for cause in causes)
    words = f"failures: {count}; causes: {len(causes)}, promoted: {promoted}"
    return Group(*([shown] if causes else []), Text(words))


def causes_json(causes: Causes, known: Keys) -> list[dict[str, object]]:
    """Returns the same for programs, with all candidates and the whole reasons."""
    return [
        {
            "cause": cause,
            "problem": failures[0].run.problem.name,
            "count": len(failures),
            "failures": [
                {
                    "run": failure.run.id,
                    "candidate": _candidate(failure) or None,
                    "outcome": failure.trial.outcome if isinstance(failure, Refused) else None,
                    "reasons": failure.trial.reasons if isinstance(failure, Refused) else (),
                }
                for failure in failures
            ],
            "promoted": _promoted(cause, known),
        }
        for cause, failures in causes.items()
    ]


def tried_again(report: Report) -> dict[str, list[str]]:
    """Returns which of the problems that no model had solved are solved now, and which are not; with the reason where
    nobody could say."""
    again = [case for case in report.cases if case.output.run and _is_past(case.metadata)]
    failed = [one for one in report.failures if isinstance(one.inputs, Solve) and _is_past(one.metadata)]
    reasons = [f"{one.name} ({fault(one)}: {' '.join(one.error_message.split())[:200]})" for one in failed]
    return {
        "newly_solved": [case.name for case in again if case.output.accepted],
        "still_unsolved": [*(case.name for case in again if not case.output.accepted), *reasons],
    }


def tried_again_line(found: Mapping[str, Sequence[str]]) -> str:
    """Returns that in one line, with its end; nothing where none was tried."""
    words = ((name.replace("_", " "), cases) for name, cases in found.items())
    line = "; ".join(f"{name}: {', '.join(cases)}" for name, cases in words if cases)
    return f"{line}\n" if line else ""


def _is_past(about: About | None) -> bool:
    return about is not None and about.past is not None


def _promoted(cause: str, known: Keys) -> list[str]:
    return [name for (promoted, _), name in known.items() if promoted == cause]


def _candidate(failure: Failure) -> str:
    return failure.candidate.id if isinstance(failure, Refused) else ""


def _reason(failure: Failure) -> str:
    if isinstance(failure, Refused):
        return first_reason(failure.trial.reasons)
    return f"none of {len(failure.trials)} candidates was accepted"
