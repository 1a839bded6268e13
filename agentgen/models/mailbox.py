"""The mailbox: requests are files, and a person or a coding agent writes the answers beside them.

Works without any API. `ask` waits for nobody to answer, only for an answer to be written to its end: else it raises
`ReplyPending`, and the run stops or looks again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import anyio

from agentgen.errors import BadInput, ModelUnavailable, ReplyPending
from agentgen.models.exchange import clear_error, read_reply, reply_path, write_error, write_request
from agentgen.records.chat import ChatReply, ChatRequest

ANONYMOUS: Final = "mailbox"
"""The model of a reply that does not name its author."""
REST_S: Final = 0.2
"""A reply is taken once its file has not changed for so long: editors and agents write in pieces."""
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 0.5


class MailboxModel:
    """Answers from files in one folder."""

    stays_out = True
    """A request's file waits for whoever writes the answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        """Always `mailbox`; a reply may name its author in its front matter."""
        return ANONYMOUS

    async def kept(self, request: ChatRequest) -> ChatReply | None:
        """Returns nothing: all that ever came is still there to be asked for. Other runs may have asked for it in the
        same folder, so it counts in a run only once that run has asked for it as well, within its caps."""
        return None

    async def ask(self, request: ChatRequest) -> ChatReply:
        """Returns the reply when it is there; else leaves the request (once).

        Raises:
            ReplyPending: names the request's file.
            ModelUnavailable: the folder cannot be used; says why.
        """
        answer = reply_path(self.folder, request)
        try:
            await _wait_for_rest(answer)
            asked = write_request(self.folder, request)
            await _wait_for_rest(answer)  # an answer may be on its way the moment the request is there
            reply = self._read(request, answer)
        except OSError as error:
            raise ModelUnavailable(f"the mailbox {self.folder} cannot be used: {error}") from error
        if reply is not None:
            return reply
        raise ReplyPending(f"{asked} waits for an answer: write it to {answer.name} beside it, then resume the run")

    async def taken(self, request: ChatRequest) -> None:
        """Nothing: the reply stays where its author put it."""

    def refuse(self, request: ChatRequest, reason: str) -> None:
        """Leaves an error file beside the reply; the request that asks again is a file of its own."""
        try:
            write_error(self.folder, request, f"{reason}. It is asked for again, if it may still be, in a new request.")
        except OSError as error:
            raise ModelUnavailable(f"the mailbox {self.folder} cannot be used: {error}") from error

    def price_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Returns 0: writing files costs nothing here. What an answer cost its author, its header may say."""
        return 0.0

    def _read(self, request: ChatRequest, answer: Path) -> ChatReply | None:
        """Returns the reply; None where there is none, or one whose header is wrong: an error file says so, and the
        corrected file is taken."""
        try:
            reply = read_reply(answer, self.name)
        except BadInput as error:
            write_error(self.folder, request, f"{error}. Correct the file.")
            return None
        clear_error(self.folder, request)
        return reply


def replies(folders: Iterable[Path]) -> frozenset[tuple[str, int]]:
    """Returns the reply files in some mailboxes with the times of their last change: another value, another answer."""
    return frozenset((str(file), file.stat().st_mtime_ns) for folder in folders for file in folder.glob("*.reply.md"))


def wait_for_another(
    folders: Sequence[Path], known: frozenset[tuple[str, int]], deadline_s: float | None = None
) -> None:
    """Returns once the mailboxes hold other replies than `known`, or at the deadline, by the monotonic clock."""
    while replies(folders) == known and (deadline_s is None or time.monotonic() < deadline_s):
        time.sleep(_LOOK_S)


async def _wait_for_rest(path: Path) -> None:
    """Returns when the file is gone or has rested, at the latest after some patience (clocks of shares may differ)."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            age_s = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            return
        if not 0 <= age_s < REST_S:
            return
        await anyio.sleep(REST_S - age_s)
