"""Puts one request to a model, through the ledger: what was answered once is never asked again.

1. A branch that ended stays ended.
2. A stored reply is used; without one the request is stored, then asked, and the reply stored before it is read.
3. An unusable answer is asked for again with the reason, at most `ATTEMPTS` times in all, then the branch ends.

Not covered: a process killed between the model's answer and its commit pays for that one answer twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeVar

from agentgen.errors import NothingRecorded, ReplyPending
from agentgen.models.chat import ChatModel
from agentgen.records.chat import ChatReply, ChatRequest
from agentgen.records.events import BranchEnded, Event
from agentgen.search.prompts import render
from agentgen.search.replies import Unusable
from agentgen.store.ledger import Ledger

ATTEMPTS: Final = 3

Answer = TypeVar("Answer")


class Missing(Enum):
    """Why there is no answer."""

    PENDING = "pending"
    """It may come: somebody has yet to write it."""
    ENDED = "ended"
    """It will not come."""


class Asker:
    """Asks the models of one run. A branch is known by the id of its first request (attempt 0)."""

    def __init__(
        self, run_id: str, ledger: Ledger, models: Sequence[ChatModel], watch: Callable[[Event], None]
    ) -> None:
        self._run_id = run_id
        self._ledger = ledger
        self._models = tuple(models)
        self._watch = watch
        self.pending = 0
        """How many answers were found to be waited for."""

    def ask(self, first: ChatRequest, parse: Callable[[ChatReply], Answer | Unusable]) -> Answer | Missing:
        """Returns what `parse` makes of the answer.

        Raises:
            ModelUnavailable: no answer after all retries of the model.
        """
        reason = self._ledger.ended(self._run_id).get(first.id)
        if reason is not None:
            self._watch(BranchEnded(first, reason))
            return Missing.ENDED
        request, refusal = first, Unusable("")
        for attempt in range(ATTEMPTS):
            if attempt:
                request = _again(first, attempt, refusal)
            try:
                answer = parse(self._reply(request))
            except ReplyPending:
                self.pending += 1
                return Missing.PENDING
            except NothingRecorded as error:
                return self._end(first, str(error))
            if not isinstance(answer, Unusable):
                return answer
            refusal = answer
            self._model(request).refuse(request, refusal.reason)
        return self._end(first, f"no usable answer in {ATTEMPTS} attempts: {refusal.reason}")

    def end(self, first: ChatRequest, reason: str) -> None:
        """Ends a branch whose answer could be read but leads nowhere."""
        self._end(first, reason)

    def _end(self, first: ChatRequest, reason: str) -> Missing:
        self._ledger.end_branch(self._run_id, first.id, reason)
        self._watch(BranchEnded(first, reason))
        return Missing.ENDED

    def _reply(self, request: ChatRequest) -> ChatReply:
        stored = self._ledger.reply(self._run_id, request.id)
        if stored is not None:
            return stored
        self._ledger.add_request(self._run_id, request)
        reply = self._model(request).ask(request)
        self._ledger.add_reply(self._run_id, request, reply)
        return reply

    def _model(self, request: ChatRequest) -> ChatModel:
        """Several models share the requests by id, so a resumed run asks the same one."""
        return self._models[int(request.id, 16) % len(self._models)]


def _again(first: ChatRequest, attempt: int, refusal: Unusable) -> ChatRequest:
    # Not model_copy(): it would carry the cached id along.
    return ChatRequest(
        role=first.role,
        problem=first.problem,
        target=first.target,
        parent=first.parent,
        system=first.system,
        prompt=render("again", prompt=first.prompt, reason=refusal.reason),
        attempt=attempt,
    )
