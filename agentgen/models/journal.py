"""Keeps what arrives of a reply until the store has it, so that a killed process does not pay for it twice.

`<folder>/<request id>.jsonl` has a line for each piece, written the moment that it arrived, then one for the end, and
more such lines as more is known of it; the last one counts:

    {"reasoning": "Tiles of 64 "}
    {"text": "```python\\n"}
    {"end": {"model": "m", "finish_reason": "stop", "used": {"output_tokens": 5}, "seconds": 1.5}}

One with an end is the reply; one without is of no use. Ids repeat between runs: each run needs a folder of its own.

Not covered: a process killed before the end was written pays again, also if the last piece had come. Killed between the
end and the usage that some servers send after it, the reply is there and its usage is not known. Lines are handed to
the kernel and not forced to the disk: a machine that loses its power may lose them. Two processes that ask the same at
the same time.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from agentgen.errors import ModelUnavailable
from agentgen.models.pieces import End, Piece, whole_reply
from agentgen.records.chat import ChatReply

_log = logging.getLogger(__name__)


class Page:
    """Takes down one reply. After a line that could not be written it takes down nothing more: a gap would not show."""

    def __init__(self, path: Path | None) -> None:
        """Opens a new file; None: nothing is kept.

        Raises:
            OSError: the file cannot be made, or is there.
        """
        self._path = path
        self._fd = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._any = False

    def add(self, piece: Piece) -> None:
        """Writes one piece."""
        self._write({name: said for name, said in asdict(piece).items() if said})

    def end(self, end: End) -> None:
        """Writes that no more comes, or more about that."""
        self._write({"end": end.model_dump(mode="json")})

    def close(self) -> None:
        """Lets go of the file, and removes it where nothing was said."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
            if not self._any and self._path is not None:
                self._path.unlink(missing_ok=True)

    def _write(self, line: dict[str, Any]) -> None:
        if self._fd is None:
            return
        data = json.dumps(line).encode() + b"\n"
        self._any = True
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            _log.warning("%s is not kept on: %s", self._path, error)
            os.close(self._fd)
            self._fd = None


class Journal:
    """The replies in one folder that the store does not have yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def reply(self, request_id: str) -> ChatReply | None:
        """Returns the reply that arrived in full; None where there is none, or none that can be read.

        Raises:
            ModelUnavailable: a file is there and cannot be read.
        """
        try:
            lines = self._path(request_id).read_bytes().decode(errors="replace").splitlines(keepends=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        try:
            said = [cast(dict[str, Any], json.loads(line)) for line in lines if line.endswith("\n")]
            pieces = [Piece(**line) for line in said if "end" not in line]
            return whole_reply(pieces, End.model_validate(said[-1]["end"]))
        except (ValueError, TypeError, LookupError, ValidationError):
            return None

    @contextmanager
    def page(self, request_id: str) -> Generator[Page]:
        """Opens a page for one reply, in place of one that broke off.

        Raises:
            ModelUnavailable: the folder cannot be made or written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path(request_id).unlink(missing_ok=True)
            page = Page(self._path(request_id))
        except OSError as error:
            raise self._unusable(error) from error
        try:
            yield page
        finally:
            page.close()

    def drop(self, request_id: str) -> None:
        """Removes what was kept of one reply, if anything."""
        try:
            self._path(request_id).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s is left behind: %s", self._path(request_id), error)

    def _unusable(self, error: OSError) -> ModelUnavailable:
        return ModelUnavailable(f"the journal of replies in {self._folder} cannot be used: {error}")

    def _path(self, request_id: str) -> Path:
        return self._folder / f"{request_id}.jsonl"
