"""Why a case has no verdict, in one of a few words: a model that is silent is no machine that fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_evals.reporting import ReportCaseFailure

from agentgen import errors

Failure = ReportCaseFailure[Any, Any, Any]

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
MAY_PASS: Final = (errors.MachineFailure, errors.ModelUnavailable, errors.ReplyPending)
"""What may be otherwise at the next attempt; anything else fails again."""


def fault(failure: Failure) -> str:
    """Returns which fault it is."""
    return next((word for kind, word in _FAULTS.items() if issubclass(_error(failure), kind)), MACHINE_FAILED)


def waits(failure: Failure) -> bool:
    """Whether nothing is missing but an answer."""
    return issubclass(_error(failure), errors.ReplyPending)


def may_pass(failure: Failure) -> bool:
    """Whether the next attempt may come to a verdict."""
    return issubclass(_error(failure), MAY_PASS)


def _error(failure: Failure) -> type[BaseException]:
    """Returns the class of what ended it: pydantic-evals keeps its name, then its message. What is none of ours is no
    more than an exception."""
    found = getattr(errors, failure.error_message.partition(":")[0], None)
    return found if isinstance(found, type) and issubclass(found, errors.AgentgenError) else Exception
