"""Replies that were given before: what they say is fixed, everything measured of it is live.

A recording is a folder of exchanges as the mailbox leaves them, with a `provenance.yaml` that says who answered, when:

    model: large language model, through the mailbox
    date: 2026-11-21
    runs: [20261121-conv2d-cpp]
    note: As they came.

A reply is found by role, problem, target, parent and attempt, never by the words of the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import yaml
from pydantic import ValidationError

from agentgen.errors import BadInput, ModelUnavailable, NothingRecorded
from agentgen.models.exchange import read_reply, reply_as_kept, reply_path, write_reply, write_request
from agentgen.models.mailbox import ANONYMOUS
from agentgen.records.base import Record
from agentgen.records.chat import ChatReply, ChatRequest

_PROVENANCE: Final = "provenance.yaml"
_GO_LIVE: Final = "for a live model set OPENAI_API_KEY or AGENTGEN_BASE_URL and give --model"


class Provenance(Record):
    """Where a recording comes from."""

    model: str
    date: date
    runs: tuple[str, ...] = ()
    """Ids of the runs whose requests were answered."""
    note: str = ""


class RecordedModel:
    """Answers from a recording."""

    stays_out = False

    def __init__(self, folder: Path) -> None:
        """Opens a recording.

        Raises:
            NothingRecorded: there is none; says how to get a live model.
            BadInput: its `provenance.yaml` cannot be used.
        """
        if not folder.is_dir():
            raise NothingRecorded(f"no replies are recorded at {folder}; {_GO_LIVE}")
        self.folder = folder
        self.provenance = _read_provenance(folder / _PROVENANCE)

    @property
    def name(self) -> str:
        """For example `recorded (large language model, through the mailbox, 2026-11-21)`."""
        return self._recorded(self.provenance.model)

    async def kept(self, request: ChatRequest) -> ChatReply | None:
        """Returns nothing: all that ever came is still there to be asked for."""
        return None

    async def ask(self, request: ChatRequest) -> ChatReply:
        """Returns the recorded reply; it costs nothing (again).

        Raises:
            NothingRecorded: says for what; the branch ends.
            ModelUnavailable: the reply's file cannot be used.
        """
        path = reply_path(self.folder, request)
        try:
            reply = read_reply(path, self.provenance.model)
        except (OSError, BadInput) as error:
            raise ModelUnavailable(f"the recorded reply {path} cannot be used: {error}") from error
        if reply is None:
            again = f", attempt {request.attempt}" if request.attempt else ""
            raise NothingRecorded(
                f"no {request.role.value} reply in {request.target} is recorded for parent {request.parent} "
                f"of {request.problem}{again}; {_GO_LIVE}"
            )
        return reply.model_copy(update={"model": self._recorded(reply.model), "cost_usd": 0.0})

    async def taken(self, request: ChatRequest) -> None:
        """Nothing: a recording stays."""

    def refuse(self, request: ChatRequest, reason: str) -> None:
        """A recording has nobody to tell."""

    def price_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Returns 0: what was paid for a recording was paid when it was made."""
        return 0.0

    def _recorded(self, model: str) -> str:
        return f"recorded ({model}, {self.provenance.date.isoformat()})"


@dataclass(frozen=True)
class Recorded:
    """What was added to a recording."""

    added: int
    """Replies."""
    kept: int
    """Replies that another one already stood in the place of; that one stays."""


def record(folder: Path, exchanges: Iterable[tuple[ChatRequest, ChatReply]], said: Provenance) -> Recorded:
    """Adds exchanges to the recording in `folder`, made where there is none.

    Args:
        folder: a problem's `recording/`.
        exchanges: requests with their replies, as they came.
        said: model, date and the run they come from. The model must be that of the recording; its date, runs and notes
            are joined.

    Raises:
        BadInput: the recording is of another model or cannot be read, or the folder cannot be written.
    """
    file = folder / _PROVENANCE
    before = _read_provenance(file) if file.exists() else said.model_copy(update={"runs": (), "note": ""})
    if before.model != said.model:
        raise BadInput(f"{folder} holds replies of {before.model!r}, these are of {said.model!r}")
    note = before.note.strip()
    if said.note.strip() not in note:
        note = f"{note} {said.note.strip()}".strip()
    joined = Provenance(
        model=said.model,
        date=max(before.date, said.date),
        runs=tuple(dict.fromkeys((*before.runs, *said.runs))),
        note=note,
    )
    added = kept = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for request, answer in exchanges:
            unnamed = answer.model == ANONYMOUS
            reply = answer.model_copy(update={"model": said.model}) if unnamed else answer
            write_request(folder, request)
            if write_reply(folder, request, reply, said.model):
                added += 1
            elif read_reply(reply_path(folder, request), said.model) != reply_as_kept(reply):
                kept += 1
        fields = joined.model_dump(mode="json", exclude_defaults=True)
        file.write_text(yaml.safe_dump(fields, sort_keys=False, width=120), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the recording {folder} cannot be written: {error.strerror or error}") from error
    return Recorded(added, kept)


def _read_provenance(path: Path) -> Provenance:
    try:
        loaded: object = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Provenance.model_validate(loaded)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'file'}: {fault['msg']}"
            for fault in error.errors(include_url=False)
        )
        raise BadInput(f"{path}: {faults}") from error
