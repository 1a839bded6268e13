"""Puts one request to a model, through the ledger: what was answered once is never asked again.

1. A branch that ended stays ended.
2. A stored reply is used; without one the request is stored, then asked, and the reply stored before it is read. A
   request that could take the run over one of its caps is neither stored nor asked.
3. An unusable answer is asked for again with the reason, at most `ATTEMPTS` times in all, then the branch ends.

Where a model gives up, nothing more is sent, but what is under way is waited for: it is paid for.

A process may be killed between a model's answer and its commit: models keep what they got until it is `taken`, and
such a reply is taken before anything is sent, under whatever cap. An answer to what this run left in a mailbox is taken
under whatever cap too, and counts as still to come until it is.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, TypeVar

import anyio

from agentgen.errors import ModelUnavailable, NothingRecorded, PromptRefused, ReplyPending
from agentgen.models.chat import ChatModel
from agentgen.models.roster import Roster
from agentgen.records.chat import ChatReply, ChatRequest
from agentgen.records.events import BranchEnded, Event, RequestOver, RequestSent
from agentgen.search.caps import Budget, Room
from agentgen.search.halt import Halt
from agentgen.search.prompts import render
from agentgen.search.replies import Unusable
from agentgen.store.ledger import Ledger

ATTEMPTS: Final = 3
AT_ONCE: Final = 8
"""Requests of a run under way. More would mostly meet a server's limit of its rate."""

Answer = TypeVar("Answer")


class Missing(Enum):
    """Why there is no answer."""

    PENDING = "pending"
    """It may come: somebody has yet to write it."""
    ENDED = "ended"
    """It will not come."""
    NOT_SENT = "not sent"
    """It was not asked for: a cap of the run stands before it, or a model gave up."""


class _NotSent(Exception):
    """A request that may not be sent."""


class Asker:
    """Asks the models of one run. A branch is known by the id of its first request (attempt 0)."""

    def __init__(
        self,
        run_id: str,
        ledger: Ledger,
        roster: Roster,
        budget: Budget,
        halt: Halt,
        watch: Callable[[Event], None],
    ) -> None:
        self._run_id = run_id
        self._ledger = ledger
        self._roster = roster
        self._budget = budget
        self._halt = halt
        self._watch = watch
        self._ended = dict(ledger.ended(run_id))
        self._answered = set(ledger.answered(run_id))
        self._places = anyio.CapacityLimiter(AT_ONCE)
        self._changed = anyio.Event()
        self.pending = 0
        """How many answers were found to be waited for."""

    async def ask(
        self, first: ChatRequest, parse: Callable[[ChatReply], Answer | Unusable], asked: Event
    ) -> Answer | Missing:
        """Returns what `parse` makes of the answer. `asked` is told unless `first` was never sent and is not now."""
        reason = self._ended.get(first.id)
        if reason is not None:
            self._watch(asked)
            self._watch(BranchEnded(first, reason))
            return Missing.ENDED
        request, refusal = first, Unusable("")
        for attempt in range(ATTEMPTS):
            if attempt:
                request = _again(first, attempt, refusal)
            try:
                answer = parse(await self._reply(request, None if attempt else asked))
                if not isinstance(answer, Unusable):
                    return answer
                refusal = answer
                self._roster.chosen(request.role, request.first_id).refuse(request, refusal.reason)
            except _NotSent:
                return Missing.NOT_SENT
            except ModelUnavailable as error:
                self._halt.at(error)
                return Missing.NOT_SENT
            except ReplyPending:
                self.pending += 1
                return Missing.PENDING
            except (NothingRecorded, PromptRefused) as error:
                return self._end(first, str(error))
        return self._end(first, f"no usable answer in {ATTEMPTS} attempts: {refusal.reason}")

    def end(self, first: ChatRequest, reason: str) -> None:
        """Ends a branch whose answer could be read but leads nowhere."""
        self._end(first, reason)

    def _end(self, first: ChatRequest, reason: str) -> Missing:
        self._ledger.end_branch(self._run_id, first.id, reason)
        self._ended[first.id] = reason
        self._watch(BranchEnded(first, reason))
        return Missing.ENDED

    async def _reply(self, request: ChatRequest, asked: Event | None) -> ChatReply:
        model = self._roster.chosen(request.role, request.first_id)
        stored = self._ledger.reply(self._run_id, request.id) if request.id in self._answered else None
        if stored is not None:
            if asked is not None:
                self._watch(asked)
            await model.taken(request)  # once more: the process may have ended before it was told
            return stored
        reply = await model.kept(request)
        if reply is None:
            async with self._places:
                reply = await self._asked(model, request, asked)
        elif asked is not None:
            self._watch(asked)
        self._ledger.add_reply(self._run_id, request, reply)
        self._answered.add(request.id)
        await model.taken(request)
        self._budget.answered(request, reply)
        if used := self._budget.used():
            self._watch(used)
        self._look_again()
        return reply

    async def _asked(self, model: ChatModel, request: ChatRequest, asked: Event | None) -> ChatReply:
        while self._halt.failure is None and (room := self._budget.look(request)) is not Room.NOW:
            if room is Room.NEVER:
                raise _NotSent
            await self._changed.wait()
        if self._halt.failure is not None:
            raise _NotSent
        if asked is not None:
            self._watch(asked)
        self._ledger.add_request(self._run_id, request)
        self._budget.sent(request)
        try:
            self._watch(RequestSent(request))
            return await model.ask(request)
        except ReplyPending:
            self._budget.waits(request)
            self._look_again()
            raise
        except (NothingRecorded, PromptRefused, ModelUnavailable):
            self._budget.lost(request)
            self._look_again()
            raise
        finally:
            self._watch(RequestOver(request))

    def _look_again(self) -> None:
        """Wakes the requests that wait for room."""
        self._changed.set()
        self._changed = anyio.Event()


def _again(first: ChatRequest, attempt: int, refusal: Unusable) -> ChatRequest:
    prompt = render("again", prompt=first.prompt, reason=refusal.reason)
    return first.model_copy(update={"prompt": prompt, "attempt": attempt})
