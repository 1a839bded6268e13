"""The ledger: everything a run has asked, got, written and measured, as it happens.

Each method is one short transaction that is committed when it returns; `merge` alone is several. Adding is idempotent:
what is there already stays as it is and the method returns False, so a resumed run may repeat its last step.

Every method raises StoreUnavailable when the database fails, and BadInput for a run that is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

from sqlalchemy import select, update

from agentgen.errors import BadInput
from agentgen.records.base import content_hash
from agentgen.records.candidate import Candidate
from agentgen.records.idea import Idea
from agentgen.records.machine import Target
from agentgen.records.run import Caps, Run, RunStatus
from agentgen.records.score import Score
from agentgen.records.trial import Trial
from agentgen.store import schema
from agentgen.store.database import Database
from agentgen.store.exchanges import Exchanges
from agentgen.store.rows import (
    CandidateRow,
    IdeaRow,
    as_json,
    run_json,
    target_values,
    to_candidate_row,
    to_run,
    to_score,
)
from agentgen.store.statements import add, copy_rows, find_run, lacking, put_text, rows, run_row, stream, texts

_ROWS_AT_ONCE: Final = 500
"""Of a merge, in one transaction: 10 MB of trials. With one for each row it took 1.8 ms a candidate to find that all
was there, and 2.5 ms to write it."""


def open_ledger(url: str) -> Ledger:
    """Opens the store at a SQLAlchemy URL, and makes it where there is none.

    Raises:
        BadConfig: `url` is no URL of a database that can be used here.
        StoreUnavailable: it cannot be opened, or a newer agentgen wrote it.
    """
    return Ledger(Database(url))


class Ledger(Exchanges):
    """All runs of one store. Safe to use from several threads and processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the store. Nothing is lost without it."""
        self._database.close()

    # Runs.

    def create_run(self, run: Run) -> bool:
        """Adds a run. One that is there keeps its status, its target and its caps.

        Raises:
            BadInput: another run has its id.
        """
        with self._database.writing(paid=True) as connection:
            there = run_row(connection, run.id)
            if there is None:
                values = {
                    "id": run.id,
                    "problem": run.problem.name,
                    "arithmetic": run.arithmetic.value,
                    # The first of several: the column has room for 16 characters, the record for all.
                    "device": run.device.partition(",")[0],
                    "status": run.status.value,
                    "record": run_json(run),
                    **target_values(run.target),
                }
                connection.execute(schema.run.insert().values(values))
        # Read anew, for the fields that a record lacks because it was written before there were any.
        if there is not None and _as_created(to_run(there)) != _as_created(run):
            raise BadInput(f"the store already has another run {run.id}")
        return there is None

    def run(self, reference: str) -> Run:
        """Returns a run by `latest`, its id or a beginning of the id that no other has.

        Raises:
            BadInput: there is none, or several; names the latest few.
        """
        with self._database.reading() as connection:
            return to_run(find_run(connection, reference))

    def runs(self) -> tuple[Run, ...]:
        """Returns all runs, the oldest first."""
        with self._database.reading() as connection:
            return tuple(to_run(row) for row in connection.execute(select(schema.run).order_by(schema.run.c.seq)))

    def set_status(self, run_id: str, status: RunStatus) -> None:
        """Says where the run stands now."""
        self._set(run_id, {"status": status.value})

    def set_target(self, run_id: str, target: Target) -> None:
        """Says what the judge found on the run's device."""
        self._set(run_id, target_values(target))

    def set_settled(self, run_id: str, round: int) -> None:
        """Says that nothing of a round and those before it is open any more."""
        self._change(run_id, {"settled": round})

    def set_caps(self, run_id: str, caps: Caps) -> None:
        """Says what the run may use from now on."""
        self._change(run_id, {"caps": caps})

    # The tree.

    def add_idea(self, run_id: str, round: int, idea: Idea) -> bool:
        """Adds an idea."""
        values = {
            "round": round,
            "parent": idea.parent,
            "category": idea.category.value,
            "title": idea.title,
            "record": as_json(idea),
        }
        with self._database.writing() as connection:
            return add(connection, schema.idea, run_id, idea.id, values)

    def ideas(self, run_id: str) -> tuple[IdeaRow, ...]:
        """Returns the ideas in the order they came."""
        return tuple(
            IdeaRow(round=row.round, idea=Idea.model_validate(row.record)) for row in self._rows(schema.idea, run_id)
        )

    def add_candidate(self, run_id: str, round: int, candidate: Candidate) -> bool:
        """Adds a candidate."""
        with self._database.writing() as connection:
            values = {
                "round": round,
                "idea": candidate.idea,
                "parent": candidate.parent,
                "language": candidate.language.value,
                "repair": candidate.repair,
                "source": put_text(connection, candidate.source),
                "record": as_json(candidate, "source"),
            }
            return add(connection, schema.candidate, run_id, candidate.id, values)

    def candidates(self, run_id: str) -> tuple[CandidateRow, ...]:
        """Returns the candidates in the order they came."""
        with self._database.reading() as connection:
            found = rows(connection, schema.candidate, run_id)
            sources = texts(connection, schema.candidate, run_id)
        return tuple(to_candidate_row(row, sources) for row in found)

    def candidate_ids(self, run_id: str) -> frozenset[str]:
        """Returns the ids of the candidates, without their sources."""
        query = select(schema.candidate.c.id).where(schema.candidate.c.run_id == run_id)
        with self._database.reading() as connection:
            return frozenset(connection.scalars(query))

    def add_trial(self, run_id: str, trial: Trial) -> bool:
        """Adds a trial of a candidate that is in the run. A candidate may have several.

        Raises:
            StoreUnavailable: also where the run has no such candidate (a foreign key).
        """
        record = as_json(trial)
        speedup = trial.speedup
        values = {
            "candidate": trial.candidate,
            "problem": trial.problem,
            "arithmetic": trial.arithmetic.value,
            "machine_id": trial.machine.id,
            "outcome": trial.outcome.value,
            "median_us": trial.timing.median_us if trial.timing else None,
            "speedup": speedup.ratio if speedup else None,
            "faster": speedup.faster if speedup else None,
            "roofline_fraction": trial.roofline_fraction,
            "record": record,
        }
        with self._database.writing() as connection:
            return add(connection, schema.trial, run_id, content_hash("trial", record), values)

    def trial(self, run_id: str, candidate_id: str) -> Trial | None:
        """Returns the latest trial of a candidate; None where it has none."""
        here = schema.trial.c.run_id == run_id, schema.trial.c.candidate == candidate_id
        query = select(schema.trial.c.record).where(*here).order_by(schema.trial.c.seq.desc()).limit(1)
        with self._database.reading() as connection:
            record = connection.scalar(query)
        return None if record is None else Trial.model_validate(record)

    def scores(self, run_id: str) -> Iterator[Score]:
        """Yields the scores of the trials in the order they came."""
        with self._database.reading() as connection:
            for row in stream(connection, schema.trial, run_id):
                yield to_score(row)

    def trials(self, run_id: str) -> tuple[Trial, ...]:
        """Returns the trials in the order they came."""
        return tuple(Trial.model_validate(row.record) for row in self._rows(schema.trial, run_id))

    def merge(self, run_id: str, source: Ledger) -> None:
        """Adds what another store holds of a run and this one lacks. In several transactions, each of which leaves
        rows that are whole: what breaks off, another call goes on with.

        Raises:
            BadInput: there is no such run in one of the stores.
        """
        for table in schema.OF_RUNS:
            with source._database.reading() as theirs, self._database.reading() as ours:
                ids = lacking(theirs, ours, table, run_id)
            for first in range(0, len(ids), _ROWS_AT_ONCE):
                with source._database.reading() as theirs, self._database.writing(paid=True) as ours:
                    copy_rows(theirs, ours, table, run_id, ids[first : first + _ROWS_AT_ONCE])

    def _set(self, run_id: str, values: dict[str, Any]) -> None:
        with self._database.writing() as connection:
            changed = connection.execute(update(schema.run).where(schema.run.c.id == run_id).values(values))
            if changed.rowcount != 1:
                raise BadInput(f"the store has no run {run_id}")

    def _change(self, run_id: str, fields: dict[str, Any]) -> None:
        with self._database.writing() as connection:
            row = run_row(connection, run_id)
            if row is None:
                raise BadInput(f"the store has no run {run_id}")
            values = {"record": run_json(to_run(row).model_copy(update=fields))}
            connection.execute(update(schema.run).where(schema.run.c.id == run_id).values(values))


def _as_created(run: Run) -> Run:
    """Returns a run without what changes."""
    return run.model_copy(update={"caps": Caps(), "settled": 0, "status": RunStatus.OPEN, "target": None})
