"""What a run came to: read from the ledger, as JSON, and its best kernel as a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentgen.errors import StoreUnavailable
from agentgen.records.candidate import SHORT_ID, Candidate
from agentgen.records.idea import Became, Idea
from agentgen.records.run import Capped, Run
from agentgen.records.trial import Trial
from agentgen.report.caps import capped_json, spent_json
from agentgen.report.ideas import became_json
from agentgen.report.table import best
from agentgen.report.trial import trial_json
from agentgen.store.ledger import Ledger
from agentgen.store.rows import Spent


@dataclass(frozen=True, slots=True)
class Solution:
    """A run with all it made, oldest first."""

    run: Run
    rounds: Mapping[str, int]
    """Of ideas and candidates, by id; the first is 1."""
    ideas: Mapping[str, Idea]
    candidates: tuple[Candidate, ...]
    trials: Mapping[str, Trial]
    """By the candidate's id, in the order in which they came."""
    spent: Spent

    @property
    def evaluated(self) -> tuple[Trial, ...]:
        """The trials in the order their candidates were written."""
        return tuple(self.trials[candidate.id] for candidate in self.candidates if candidate.id in self.trials)


def read(ledger: Ledger, run_id: str) -> Solution:
    """Returns a run as the ledger holds it now."""
    ideas, candidates = ledger.ideas(run_id), ledger.candidates(run_id)
    rounds = {row.idea.id: row.round for row in ideas} | {row.candidate.id: row.round for row in candidates}
    return Solution(
        run=ledger.run(run_id),
        rounds=rounds,
        ideas={row.idea.id: row.idea for row in ideas},
        candidates=tuple(row.candidate for row in candidates),
        trials={trial.candidate: trial for trial in ledger.trials(run_id)},
        spent=ledger.spent(run_id),
    )


def write_best(solution: Solution, folder: Path) -> Path | None:
    """Writes the best kernel, as it is, with its trial beside it; returns its path, None where none was ranked.

    The source is not touched, not even by a comment: its hash is what was judged.

    Raises:
        StoreUnavailable: the folder cannot be written.
    """
    trial, kernel = best(solution.evaluated), best_file(solution, folder)
    if trial is None or kernel is None:
        return None
    candidate = next(candidate for candidate in solution.candidates if candidate.id == trial.candidate)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kernel.write_text(candidate.source, encoding="utf-8", newline="")
        (folder / "trial.json").write_text(trial.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreUnavailable(f"the best kernel cannot be written to {folder}: {error}") from error
    return kernel


def best_file(solution: Solution, folder: Path) -> Path | None:
    """Returns where the best kernel lies, if it was written; None where none was ranked."""
    top = best(solution.evaluated)
    return folder / f"{solution.run.problem.name}-{top.candidate[:SHORT_ID]}.py" if top else None


def solution_json(
    solution: Solution,
    became: Mapping[str, Became],
    kernel: Path | None,
    minutes: float | None,
    capped: Capped | None = None,
) -> dict[str, object]:
    """Returns what `solve --json` prints, and `report --json`.

    Args:
        solution: a run.
        became: what became of its ideas, by their ids.
        kernel: its best one, on disk.
        minutes: of this invocation; None where it only looks at a run.
        capped: which cap ended it, if one did.
    """
    run = solution.run
    top = best(solution.evaluated)
    return {
        "run": run.id,
        "status": run.status.value,
        "problem": run.problem.name,
        "arithmetic": run.arithmetic.value,
        "device": run.device,
        "workload": run.target.workload if run.target else None,
        "languages": [language.value for language in run.languages],
        "model": list(run.models),
        "strategy": run.plan.strategy.value,
        "created": run.created.isoformat(),
        "rounds": max(solution.rounds.values(), default=0),
        "ideas": [
            {
                "idea": idea.id,
                "round": solution.rounds[idea.id],
                **idea.model_dump(mode="json"),
                **became_json(idea, became),
            }
            for idea in solution.ideas.values()
        ],
        "trials": [_candidate_json(solution, candidate) for candidate in solution.candidates],
        "best": top.candidate if top else None,
        "kernel": str(kernel) if kernel else None,
        "caps": run.caps.model_dump(mode="json"),
        "spent": spent_json(solution.spent, len(solution.candidates), minutes),
        "stopped_by": capped_json(capped),
    }


def _candidate_json(solution: Solution, candidate: Candidate) -> dict[str, object]:
    """One entry per candidate; those that still wait for their device have the outcome null."""
    trial = solution.trials.get(candidate.id)
    entry: dict[str, object] = {
        "candidate": candidate.id,
        "round": solution.rounds[candidate.id],
        "parent": candidate.parent,
        "repair": candidate.repair,
        "idea": candidate.idea,
        "language": candidate.language.value,
        "outcome": None,
        "timing": None,
        "speedup": None,
    }
    return {**entry, **(trial_json(trial) if trial else {})}
