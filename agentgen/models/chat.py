"""What the search needs of a language model. Implemented by `client`, `recorded` and `mailbox`."""

from __future__ import annotations

from typing import Protocol

from agentgen.records.chat import ChatReply, ChatRequest


class ChatModel(Protocol):
    """Answers one request at a time; a conversation is the caller's business."""

    @property
    def name(self) -> str:
        """Who answers, as shown to the user."""
        ...

    def ask(self, request: ChatRequest) -> ChatReply:
        """Returns the model's answer, as it came.

        Raises:
            NothingRecorded: the recording holds no reply for this request, and never will.
            ReplyPending: the request waits in the mailbox; ask again later.
            ModelUnavailable: no usable answer after all retries.
        """
        ...

    def refuse(self, request: ChatRequest, reason: str) -> None:
        """Tells whoever answered that the reply to `request` could not be used, and why."""
        ...
