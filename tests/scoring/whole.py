"""An evaluation from a dataset's file to its report, by judges that the tests bring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentgen.scoring import batch, cases
from agentgen.scoring.benches import Bench, OnDevice, OpenJudge, SolveOne, nothing
from agentgen.scoring.hall import OnFailure, OnVerdict
from agentgen.scoring.hall import nothing as untold
from agentgen.scoring.journal import Journal, Visitor
from agentgen.scoring.verdicts import Verdict


def ignore(_name: str, _verdict: Verdict) -> None:
    """Is told, and does nothing."""


def nobody(_device: str, visitor: Visitor) -> tuple[Verdict, None]:
    """Solves nothing."""
    raise AssertionError(f"{visitor.name} is no problem to be solved")


def evaluated(
    path: Path,
    open_judge: OpenJudge,
    devices: Sequence[str] = ("cpu",),
    *,
    solve: SolveOne = nobody,
    on_verdict: OnVerdict = ignore,
    on_failure: OnFailure = untold,
    at_end: OnDevice = nothing,
    repeat: int = 1,
    limit_s: float | None = None,
) -> batch.Report:
    """Returns the report of a dataset; the journal lies beside it and is left there."""
    benches = [Bench(device, path.parent, open_judge, solve, at_end) for device in devices]
    journal = Journal(path.with_suffix(".jsonl"), path.parent)
    return batch.evaluate(cases.load(path), benches, journal, on_verdict, on_failure, repeat=repeat, limit_s=limit_s)
