"""What the search needs of a language model. Implemented by `client`, `recorded` and `mailbox`."""

from __future__ import annotations

from typing import Protocol

from agentgen.records.chat import ChatReply, ChatRequest


class ChatModel(Protocol):
    """Answers requests, several at a time; a conversation is the caller's business."""

    @property
    def name(self) -> str:
        """Who answers, as shown to the user."""
        ...

    @property
    def stays_out(self) -> bool:
        """Whether a request stays out that was asked and not answered, and may be answered with no process there."""
        ...

    async def kept(self, request: ChatRequest) -> ChatReply | None:
        """Returns a reply to `request` that came and was never `taken`, because the process ended in between. It costs
        nothing more; None where there is none."""
        ...

    async def ask(self, request: ChatRequest) -> ChatReply:
        """Returns the model's answer, as it came; it may have a `fault`. Cancelled, it waits for nothing more.

        Raises:
            NothingRecorded: the recording holds no reply for this request, and never will.
            PromptRefused: this request will never be answered; others may be.
            ReplyPending: the request waits in the mailbox; ask again later.
            ModelUnavailable: no answer after all retries.
        """
        ...

    async def taken(self, request: ChatRequest) -> None:
        """Is told that the reply to `request` is stored and need not be kept any more."""
        ...

    def refuse(self, request: ChatRequest, reason: str) -> None:
        """Tells whoever answered that the reply to `request` could not be used, and why."""
        ...

    def price_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Returns what so many tokens cost at most, with nothing cached; None where the price is not known."""
        ...
