"""Why a case has no verdict, in one of a few words: a model that is silent is no machine that fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_evals.reporting import ReportCaseFailure

from agentgen import errors

MACHINE_FAILED: Final = "the machine failed"
"""Also said of what nobody foresaw."""
_FAULTS: Final[Mapping[type[errors.AgentgenError], str]] = {
    errors.ReplyPending: "waits for answers",
    errors.ModelFailure: "no model answered",
    errors.BadInput: "cannot be judged",
    errors.ReferenceInvalid: "cannot be judged",
}
"""The first that fits counts."""
FAULTS: Final = tuple(dict.fromkeys([*_FAULTS.values(), MACHINE_FAILED]))


def fault(failure: ReportCaseFailure[Any, Any, Any]) -> str:
    """Returns which fault it is: pydantic-evals keeps an error as the name of its class, then its message."""
    found = getattr(errors, failure.error_message.partition(":")[0], None)
    known = found if isinstance(found, type) else errors.MachineFailure
    return next((word for kind, word in _FAULTS.items() if issubclass(known, kind)), MACHINE_FAILED)
