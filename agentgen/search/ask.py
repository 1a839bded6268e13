"""Puts one request to a model, through the ledger: what was answered once is never asked again.

1. A branch that ended stays ended.
2. A stored reply is used; without one the request is stored, then asked, and the reply stored before it is read. A
   request that could take the run over one of its caps is neither stored nor asked.
3. An unusable answer is asked for again with the reason, at most `ATTEMPTS` times in all, then the branch ends.

Not covered: a process killed between the model's answer and its commit pays for that one answer twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeVar

from agentgen.errors import NothingRecorded, ReplyPending
from agentgen.models.chat import ChatModel, model_for
from agentgen.records.chat import ChatReply, ChatRequest
from agentgen.records.events import BranchEnded, Event
from agentgen.search.caps import Budget
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
    CAPPED = "capped"
    """It was not asked for: a cap of the run stands before it."""


class _OverCap(Exception):
    """A request that may not be sent."""


class Asker:
    """Asks the models of one run. A branch is known by the id of its first request (attempt 0)."""

    def __init__(
        self,
        run_id: str,
        ledger: Ledger,
        models: Sequence[ChatModel],
        budget: Budget,
        watch: Callable[[Event], None],
    ) -> None:
        self._run_id = run_id
        self._ledger = ledger
        self._models = tuple(models)
        self._budget = budget
        self._watch = watch
        self.pending = 0
        """How many answers were found to be waited for."""

    def ask(
        self, first: ChatRequest, parse: Callable[[ChatReply], Answer | Unusable], asked: Event
    ) -> Answer | Missing:
        """Returns what `parse` makes of the answer. `asked` is told unless `first` was never sent and is not now.

        Raises:
            ModelUnavailable: no answer after all retries of the model.
        """
        reason = self._ledger.ended(self._run_id).get(first.id)
        if reason is not None:
            self._watch(asked)
            self._watch(BranchEnded(first, reason))
            return Missing.ENDED
        request, refusal = first, Unusable("")
        for attempt in range(ATTEMPTS):
            if attempt:
                request = _again(first, attempt, refusal)
            try:
                answer = parse(self._reply(request, None if attempt else asked))
            except _OverCap:
                return Missing.CAPPED
            except ReplyPending:
                self.pending += 1
                self._budget.waits(request)
                return Missing.PENDING
            except NothingRecorded as error:
                return self._end(first, str(error))
            if not isinstance(answer, Unusable):
                return answer
            refusal = answer
            model_for(request, self._models).refuse(request, refusal.reason)
        return self._end(first, f"no usable answer in {ATTEMPTS} attempts: {refusal.reason}")

    def end(self, first: ChatRequest, reason: str) -> None:
        """Ends a branch whose answer could be read but leads nowhere."""
        self._end(first, reason)

    def _end(self, first: ChatRequest, reason: str) -> Missing:
        self._ledger.end_branch(self._run_id, first.id, reason)
        self._watch(BranchEnded(first, reason))
        return Missing.ENDED

    def _reply(self, request: ChatRequest, asked: Event | None) -> ChatReply:
        stored = self._ledger.reply(self._run_id, request.id)
        if stored is None and not self._budget.may_send(request):
            raise _OverCap
        if asked is not None:
            self._watch(asked)
        if stored is not None:
            return stored
        self._ledger.add_request(self._run_id, request)
        reply = model_for(request, self._models).ask(request)
        self._ledger.add_reply(self._run_id, request, reply)
        self._budget.answered(request, reply)
        return reply


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
