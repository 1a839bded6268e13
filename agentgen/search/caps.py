"""Keeps a run within its caps (`records.run.Caps`): whether the next request may be sent.

Spent is what the stored replies say. What a request takes is not known before its answer, so it is estimated upwards:

- Input: the prompt's UTF-8 bytes / 3 and some for the chat's frame. Tokenisers have about four bytes to a token in
  English and somewhat over three in code, which is what prompts here are made of; if a reply of the run shows more
  tokens to a byte, its share is taken.
- Output: the largest so far of this model in the run. Until it has answered a request of the same role, at least
  `FIRST_REPLY_TOKENS`: code is longer than ideas. No limit is sent to the server (`models.client`).
- Price: that of the estimated tokens, nothing cached. Seconds: the longest reply of this model in the run.

What a reply does not say (tokens, price) is estimated in the same way from its texts. Requests that are out, under way
or in a mailbox, count with all that they could take; one that fits only beside nothing under way waits until that has
ended. One that is out in a mailbox from an earlier walk is asked for again under whatever cap: that takes nothing more,
and its answer may have come. After the first request that is not sent none is, though a shorter one might fit: what a
search does must not depend on which of its requests are small.

Not covered: an answer larger than any before, which exceeds a cap by that one answer; attempts that a server charged
for and did not answer (time-outs), for they are in no reply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import Final

from agentgen.errors import BadInput
from agentgen.models.chat import ChatModel
from agentgen.models.roster import Roster
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.events import Used
from agentgen.records.run import Cap, Capped, Caps, Run
from agentgen.store.ledger import Ledger
from agentgen.store.rows import Letter, letter_of, text_bytes

BYTES_PER_TOKEN: Final = 3
FRAME_TOKENS: Final = 64
"""Of a chat's template around system and prompt."""
FIRST_REPLY_TOKENS: Final = 16_384
"""Of an answer with its reasoning, before any is known: a kernel of 30 KB and some thought."""


def require_prices(caps: Caps, models: Sequence[ChatModel]) -> None:
    """Raises BadInput where a cap on money cannot be kept, because nobody knows what a model costs."""
    unknown = [model.name for model in models if model.price_usd(1, 1) is None]
    if caps.usd is not None and unknown:
        raise BadInput(
            f"{Cap.USD} cannot be kept: no price is known for {', '.join(unknown)} there; give {Cap.TOKENS} instead"
        )


@dataclass
class _Seen:
    """What the replies of one model in the run have shown."""

    output_tokens: int = 0
    """Largest."""
    tokens_per_byte: float = 1 / BYTES_PER_TOKEN
    """Most, of input."""
    seconds: float = 0.0
    """Longest."""
    roles: set[Role] = field(default_factory=set[Role])


@dataclass
class _Sum:
    """What some requests take, or could."""

    tokens: int = 0
    usd: float = 0.0
    candidates: int = 0

    def add(self, other: _Sum) -> None:
        self.tokens += other.tokens
        self.usd += other.usd
        self.candidates += other.candidates


class Room(Enum):
    """Whether a request fits into what is left."""

    NOW = "now"
    LATER = "later"
    """Perhaps, when a request under way has taken less than it could: replies are estimated upwards."""
    NEVER = "never"


class Budget:
    """What one walk through a run may still ask for."""

    def __init__(self, run: Run, ledger: Ledger, roster: Roster, elapsed_s: Callable[[], float]) -> None:
        """Reads what the run has spent, where that counts.

        Args:
            run: with its caps.
            ledger: that holds it.
            roster: the models of the run.
            elapsed_s: returns the seconds since the invocation began.
        """
        self._caps = run.caps
        self._roster = roster
        self._elapsed_s = elapsed_s
        self._seen: defaultdict[str, _Seen] = defaultdict(_Seen)
        self._spent = _Sum()
        self._under_way: dict[str, _Sum] = {}
        """What requests could take that were sent and not answered yet, by id."""
        self._mailbox: dict[str, _Sum] = {}
        """What requests could take that wait for somebody to answer them, by id."""
        self._about: set[Cap] = set()
        self._candidates: set[str] = set()
        self.capped: Capped | None = None
        """Why nothing more is sent; None as long as everything was."""
        if run.caps == Caps():
            return
        self._candidates = set(ledger.candidate_ids(run.id))
        ended, out = ledger.ended(run.id), list[Letter]()
        for letter in ledger.letters(run.id):
            if letter.answered:
                self._count(letter)
            elif letter.id not in ended and roster.chosen(letter.role, letter.first_id).stays_out:
                out.append(letter)
        self._mailbox = {letter.id: self._most(letter.role, letter.first_id, letter.request_bytes) for letter in out}

    def look(self, request: ChatRequest) -> Room:
        """Returns whether a request may be sent. Once one does not fit, none does, but those that are out already."""
        if request.id in self._mailbox:
            return Room.NOW
        if self.capped is not None:
            return Room.NEVER
        in_mailbox = _sum(self._mailbox)
        out = _sum(self._mailbox, self._under_way)
        if self._over(request, out) is None:
            return Room.NOW
        if self._under_way and self._over(request, in_mailbox) is None:
            return Room.LATER
        self.capped = self._over(request, in_mailbox) or self._over(request, out)
        return Room.NEVER

    def sent(self, request: ChatRequest) -> None:
        """Counts what a request could take that is under way."""
        self._mailbox.pop(request.id, None)
        self._under_way[request.id] = self._most_of(request)

    def waits(self, request: ChatRequest) -> None:
        """Counts a request as one that somebody has yet to answer."""
        self._mailbox[request.id] = self._under_way.pop(request.id)

    def lost(self, request: ChatRequest) -> None:
        """Counts a request no longer: no answer will come."""
        self._under_way.pop(request.id, None)

    def answered(self, request: ChatRequest, reply: ChatReply) -> None:
        """Counts a stored reply."""
        self._under_way.pop(request.id, None)
        self._count(letter_of(request, reply))

    def kept(self, candidate_id: str) -> None:
        """Counts a candidate of the run."""
        self._candidates.add(candidate_id)

    def used(self) -> Used | None:
        """Returns what stored replies have taken; None for a run without caps, whose earlier replies nobody counts."""
        if self._caps == Caps():
            return None
        return Used(self._spent.tokens, self._spent.usd, frozenset(self._about))

    def _count(self, letter: Letter) -> None:
        model = self._roster.chosen(letter.role, letter.first_id)
        seen = self._seen[model.name]
        tokens_in, tokens_out, size = letter.input_tokens, letter.output_tokens, letter.request_bytes
        if tokens_in is None or tokens_out is None:
            self._about.add(Cap.TOKENS)
        if tokens_in is None:
            tokens_in = _input_tokens(size, seen)
        elif size:
            seen.tokens_per_byte = max(seen.tokens_per_byte, (tokens_in - FRAME_TOKENS) / size)
        if tokens_out is None:
            tokens_out = ceil(letter.reply_bytes / BYTES_PER_TOKEN)
        usd = letter.cost_usd
        if usd is None:
            usd = model.price_usd(tokens_in, tokens_out) or 0.0  # not known: only where there is no cap on it
            self._about.add(Cap.USD)
        self._spent.add(_Sum(tokens_in + tokens_out, usd))
        seen.output_tokens = max(seen.output_tokens, tokens_out)
        seen.seconds = max(seen.seconds, letter.seconds or 0.0)
        seen.roles.add(letter.role)

    def _over(self, request: ChatRequest, out: _Sum) -> Capped | None:
        """Returns the first cap that a request could exceed beside others that are out."""
        if self._caps == Caps():
            return None
        most, caps = self._most_of(request), self._caps
        seconds = self._seen[self._roster.chosen(request.role, request.first_id).name].seconds
        for cap, limit, spent, waiting, more in (
            # Ideas make no candidate, but are of no use where no candidate may follow.
            (Cap.CANDIDATES, caps.candidates, len(self._candidates), out.candidates, 1),
            (Cap.MINUTES, caps.minutes, self._elapsed_s() / 60, 0, seconds / 60),
            (Cap.TOKENS, caps.tokens, self._spent.tokens, out.tokens, most.tokens),
            (Cap.USD, caps.usd, self._spent.usd, out.usd, most.usd),
        ):
            if limit is not None and spent + waiting + more > limit:
                about = cap in self._about
                return Capped(cap=cap, limit=limit, spent=spent, waiting=waiting, next=more, about=about)
        return None

    def _most_of(self, request: ChatRequest) -> _Sum:
        return self._most(request.role, request.first_id, text_bytes(request.system, request.prompt))

    def _most(self, role: Role, first_id: str, request_bytes: int) -> _Sum:
        """Returns what a request could take."""
        model = self._roster.chosen(role, first_id)
        seen = self._seen[model.name]
        tokens_in = _input_tokens(request_bytes, seen)
        known = role in seen.roles
        tokens_out = seen.output_tokens if known else max(seen.output_tokens, FIRST_REPLY_TOKENS)
        usd = model.price_usd(tokens_in, tokens_out) or 0.0  # not known: only where there is no cap on it
        return _Sum(tokens_in + tokens_out, usd, 0 if role is Role.IDEAS else 1)


def _sum(*out: Mapping[str, _Sum]) -> _Sum:
    """Returns what requests could take together."""
    total = _Sum()
    for some in out:
        for one in some.values():
            total.add(one)
    return total


def _input_tokens(size: int, seen: _Seen) -> int:
    return FRAME_TOKENS + ceil(size * seen.tokens_per_byte)
