"""Whose work is it? The operators that a call dispatches to torch, against those that are free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentgen.records.problem import OwnWork
from agentgen.records.trial import Outcome
from agentgen.verify.findings import NotGated, Rejected, check

_ALLOCATING = """
    alias as_strided chunk detach empty empty_like empty_permuted empty_strided expand is_pinned lift_fresh
    _local_scalar_dense narrow new_empty new_empty_strided permute _reshape_alias resize_ select set_ slice split
    split_with_sizes squeeze t transpose record_stream unbind unflatten unfold _unsafe_view unsqueeze view view_as
    """
_MOVING = """
    arange cat clone constant_pad_nd contiguous copy copy_ fill fill_ flatten full full_like lift_fresh_copy new_full
    new_ones new_zeros ones ones_like pad pin_memory _pin_memory reshape stack to _to_copy zero_ zeros zeros_like
    """
ALLOCATING = frozenset(_ALLOCATING.split())
"""They make memory or look at it differently, and touch none of it."""
MOVING = frozenset(_MOVING.split())
"""They fill, copy, cast, pad or permute; some only do where a view is not enough."""
FREE = ALLOCATING | MOVING
"""Compute nothing of the problem."""
_MARKS = frozenset(
    {
        "profiler._record_function_enter_new.default",
        "profiler._record_function_enter.default",
        "profiler._record_function_exit.default",
        "profiler._record_function_exit._RecordFunction",
    }
)
"""Labels that `torch.profiler.record_function` puts round a block. By full name: anybody can register an operator."""
_SHOWN = 8


@check("own work: dispatcher")
def dispatches_no_compute(dispatched: Mapping[str, int], policy: OwnWork) -> str | NotGated:
    """Catches torch's operators doing the work, called from Python or from C++, also in a fallback that a caught
    exception leads to, as long as the recorded call takes it: under `strict` only allocation, fill, copy, cast, pad
    and permute may be dispatched. Does not catch libraries called past torch's dispatcher (the native symbols and the
    processor time do), a candidate that leaves the recording mode, and calls that were not recorded.

    Args:
        dispatched: Operator names as torch prints them ("aten.conv2d.default") with counts.
        policy: Whether library compute is allowed.

    Raises:
        Rejected: CHEATED, when torch computed for the candidate under `strict`.
    """
    borrowed = sorted(name for name in dispatched if not _is(name, FREE) and name not in _MARKS)
    if not borrowed:
        return "no ATen compute in a call"
    if policy is OwnWork.STRICT:
        raise Rejected(Outcome.CHEATED, f"torch computes for the candidate: {listed(borrowed)}")
    return NotGated(f"library compute, allowed: {listed(borrowed)}")


def moved_bytes(returned: Mapping[str, int]) -> int:
    """Returns how much the operators that may fill or copy have returned, of bytes by operator."""
    return sum(count for name, count in returned.items() if _is(name, MOVING))


def listed(names: Iterable[str]) -> str:
    """Returns the first few names, in order, and how many more there are."""
    every = sorted(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def _is(name: str, operators: frozenset[str]) -> bool:
    namespace, _, rest = name.partition(".")
    return namespace == "aten" and rest.split(".")[0] in operators
