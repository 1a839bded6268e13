"""`agentgen record`: a run's replies become its problem's recording, which later runs replay."""

from __future__ import annotations

from pathlib import Path

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import Json
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.errors import BadInput
from agentgen.models.recorded import Provenance, record


def keep(run: str, /, *, model: str, note: str = "", to: Path | None = None, json: Json = False) -> int:
    """Keep the replies of a run as its problem's recording. What a place in it holds already stays.

    Args:
        run: Id of a run, `latest`, or a run's folder.
        model: Who answered, as shown whenever the recording is replayed.
        note: How the replies came about, added to the provenance.
        to: Folder of the recording. [default: `recording` of the problem]
    """
    settings = config.here(Layer())
    with wiring.ledger(settings) as ledger:
        known, settings = wiring.find_run(settings, ledger, run)
        exchanges = [(found.request, found.reply) for found in ledger.exchanges(known.id) if found.reply]
    if wiring.is_replayed(known):
        raise BadInput(f"run {known.id} was itself replayed from a recording")
    if not exchanges:
        raise BadInput(f"run {known.id} has no replies yet")
    folder = to or wiring.recording_of(settings, known.problem.name)
    said = Provenance(model=model, date=known.created.date(), runs=(known.id,), note=note)
    done = record(folder, exchanges, said)
    screen().print(f"{folder}: {done.added} replies added, {done.kept} kept as they were")
    if json:
        answer({"run": known.id, "recording": str(folder), "added": done.added, "kept": done.kept})
    return 0
