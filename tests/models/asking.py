"""Requests, and how the tests put them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from fault_server import FaultServer

from agentgen.models.chat import ChatModel
from agentgen.models.client import OpenAIModel
from agentgen.records.chat import ChatReply, ChatRequest, Role

REQUEST = ChatRequest(
    role=Role.WRITE, problem="conv2d", target="cuda", parent="ab" * 8, system="Be fast.", prompt="Go."
)
IDEAS = REQUEST.model_copy(update={"role": Role.IDEAS})


def model(server: FaultServer, name: str = "m", **settings: Any) -> OpenAIModel:
    return OpenAIModel(name, server.url, "key", **settings)


def ask(asked: ChatModel, request: ChatRequest = REQUEST) -> ChatReply:
    """Returns the reply, in an event loop of its own, as the search asks for it: what was kept first."""

    async def put() -> ChatReply:
        return await asked.kept(request) or await asked.ask(request)

    return anyio.run(put)


async def until(condition: Callable[[], bool]) -> None:
    """Returns once something holds; fails after half a minute."""
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.02)
