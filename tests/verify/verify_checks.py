"""What a check of native code leaves in a trial."""

from __future__ import annotations

from collections.abc import Callable

from agentgen.records.problem import OwnWork
from agentgen.records.trial import Check, Outcome
from agentgen.verify.checks.native import NativeLibrary, borrows_no_symbols
from agentgen.verify.checks.processor import borrowed_limit, copies_outputs, shares, spends_time_in_own_code
from agentgen.verify.findings import Findings, Rejected


def seen_by(look: Callable[[Findings], None]) -> Check:
    """Returns the line that a check leaves in the trial, whether it rejects or not."""
    findings = Findings()
    outcome = Outcome.PASSED
    try:
        look(findings)
    except Rejected as rejected:
        outcome = rejected.outcome
    (check,) = findings.checks
    assert outcome is (Outcome.CHEATED if check.passed is False else Outcome.PASSED)
    return check


def symbols_check(libraries: list[NativeLibrary], policy: OwnWork = OwnWork.STRICT) -> Check:
    return seen_by(lambda findings: borrows_no_symbols(findings, libraries, policy))


def time_check(
    samples: dict[str, int], libraries: list[NativeLibrary], moved: float = 0.0, policy: OwnWork = OwnWork.STRICT
) -> Check:
    """`moved`: bytes that torch moved in a call of a second, on a machine that copies 1 byte in a second."""
    limit = borrowed_limit(moved, 1.0, 1.0)
    return seen_by(lambda findings: spends_time_in_own_code(findings, shares(samples, libraries), limit, policy))


def copy_check(samples: dict[str, int] | None, libraries: list[NativeLibrary], due: float) -> Check:
    return seen_by(lambda findings: copies_outputs(findings, samples, libraries, due))
