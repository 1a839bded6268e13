"""A run as one file, to be carried to another machine and back: a store of its own, `run.db` in the run's folder.

Merging is idempotent: what both sides hold is the same by its content hash, what one side lacks is added. Most merges
find nothing to add, as most files were written here: they read ids alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from agentgen.errors import BadInput, StoreUnavailable
from agentgen.records.run import Run
from agentgen.store.ledger import Ledger, open_ledger

FILE: Final = "run.db"


def pack(ledger: Ledger, run_id: str, folder: Path) -> Path:
    """Writes a run to `folder`, whole or not at all, and returns the file.

    Raises:
        StoreUnavailable: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".run.", dir=folder) as part:
            packed = Path(part) / FILE
            with open_ledger(f"sqlite:///{packed}") as target:
                _copy(ledger, target, run_id)
            os.replace(packed, folder / FILE)
    except OSError as error:
        raise StoreUnavailable(f"the run cannot be written to {folder}: {error.strerror or error}") from error
    return folder / FILE


def unpack(folder: Path, ledger: Ledger) -> Run:
    """Merges the run that was packed in `folder` into a ledger, and returns it as it is there now.

    Raises:
        BadInput: no run is packed there.
    """
    file = folder / FILE
    if not file.is_file():
        raise BadInput(f"{folder} holds no {FILE}: it is not the folder of a run")
    with open_ledger(f"sqlite:///{file}") as source:
        run_id = source.run("latest").id
        _copy(source, ledger, run_id)
    return ledger.run(run_id)


def _copy(source: Ledger, target: Ledger, run_id: str) -> None:
    run = source.run(run_id)
    new = target.create_run(run.model_copy(update={"settled": 0}))
    if new:
        target.set_status(run_id, run.status)
    if run.target is not None and target.run(run_id).target is None:
        target.set_target(run_id, run.target)
    target.merge(run_id, source)
    if new:  # last: a copy that breaks off has not settled what it lacks. One that was there has work of its own
        target.set_settled(run_id, run.settled)
