"""The mailbox: requests are files, and a person or a coding agent writes the answers beside them.

Works without any API. `ask` never waits for an answer: it raises `ReplyPending`, and the run stops or looks again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from agentgen.errors import BadInput, ModelUnavailable, ReplyPending
from agentgen.models.exchange import read_reply, reply_path, write_request
from agentgen.records.chat import ChatReply, ChatRequest

REST_S: Final = 0.2
"""A reply is taken once its file has not changed for so long: editors and agents write in pieces."""
_PATIENCE_S: Final = 5.0


class MailboxModel:
    """Answers from files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        """Always `mailbox`; a reply may name its author in its front matter."""
        return "mailbox"

    def ask(self, request: ChatRequest) -> ChatReply:
        """Returns the reply when it is there; else leaves the request (once).

        Raises:
            ReplyPending: names the request's file.
            ModelUnavailable: the folder or the reply cannot be used; says why.
        """
        answer = reply_path(self.folder, request)
        try:
            _wait_for_rest(answer)
            reply = read_reply(answer, self.name)
            if reply is not None:
                return reply
            asked = write_request(self.folder, request)
        except OSError as error:
            raise ModelUnavailable(f"the mailbox {self.folder} cannot be used: {error}") from error
        except BadInput as error:
            raise ModelUnavailable(f"{error}; correct the file and resume the run") from error
        raise ReplyPending(f"{asked} waits for an answer: write it to {answer.name} beside it, then resume the run")


def _wait_for_rest(path: Path) -> None:
    """Returns when the file is gone or has rested, at the latest after some patience (clocks of shares may differ)."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            age_s = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            return
        if not 0 <= age_s < REST_S:
            return
        time.sleep(REST_S - age_s)
