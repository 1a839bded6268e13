"""Whose work is it? The operators that a call dispatches to torch, against those that are free."""

from __future__ import annotations

from collections.abc import Mapping

from agentgen.records.problem import OwnWork
from agentgen.records.trial import Outcome
from agentgen.verify.check import Findings

_NAMES = """
    alias arange as_strided cat chunk clone constant_pad_nd contiguous copy copy_ detach empty empty_like
    empty_permuted empty_strided expand fill fill_ flatten full full_like lift_fresh lift_fresh_copy narrow new_empty
    new_empty_strided new_full new_ones new_zeros ones ones_like pad permute reshape resize_ select set_ slice split
    split_with_sizes squeeze stack t to _to_copy transpose unbind unflatten unfold unsqueeze view view_as
    _local_scalar_dense _reshape_alias _unsafe_view zero_ zeros zeros_like pin_memory _pin_memory is_pinned
    """
FREE = frozenset(_NAMES.split())
"""Allocation, fill, copy, cast, pad, permute: they move or make memory and compute nothing of the problem."""


def judge_coverage(dispatched: Mapping[str, int], policy: OwnWork, findings: Findings) -> None:
    """Decides by the operators of one call.

    Args:
        dispatched: Operator names as torch prints them ("aten.conv2d.default") with counts.
        policy: Whether library compute is allowed.
        findings: Takes the check.

    Raises:
        Rejected: CHEATED, when torch computed for the candidate under `strict`.
    """
    borrowed = sorted(name for name in dispatched if not _is_free(name))
    if borrowed and policy is OwnWork.STRICT:
        raise findings.failed(
            "own work", Outcome.CHEATED, f"torch computes for the candidate: {', '.join(borrowed[:8])}"
        )
    evidence = f"library compute, allowed: {', '.join(borrowed[:8])}" if borrowed else "no ATen compute in a call"
    findings.passed("own work", evidence)


def _is_free(name: str) -> bool:
    namespace, _, rest = name.partition(".")
    operator = rest.split(".")[0]
    return (namespace == "aten" and operator in FREE) or namespace == "profiler"
