"""A model behind any server of OpenAI's `chat.completions`: OpenAI, OpenRouter, vLLM, SGLang, llama.cpp, Ollama.

Only the portable part of the protocol is used: messages in, text out. No tools, no response format, no limit of tokens
(its name differs between servers; each has a default).

Replies are streamed: a timeout then is a silence and not a long answer, a server stops when nobody listens any more,
and of a reply that breaks off there is what came of it. A reply that was begun is never asked for again in here: it was
paid, so it is returned with its fault.

Not covered: a server that keeps sending comments (OpenRouter does while a model waits) is never silent.

Importing this imports openai (about half a second).
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import openai
from genai_prices import Usage, calc_price
from openai import AsyncAPIResponse
from tenacity import AsyncRetrying, retry_if_exception, stop_before_delay

from agentgen.errors import ModelUnavailable, PromptRefused
from agentgen.models.chunks import Chunk
from agentgen.models.journal import Journal, Page
from agentgen.models.pieces import End, Piece, Used, whole_reply
from agentgen.models.retries import (
    Attempts,
    NothingCame,
    explain,
    one_line,
    refused_option,
    refuses_prompt,
    tell_of_a_long_wait,
    wait_s,
    worth_retrying,
)
from agentgen.models.streams import BrokeOff, NoCompletion, chunks_of
from agentgen.records.chat import ChatReply, ChatRequest, Fault, Role

_log = logging.getLogger(__name__)

OPENAI_URL: Final = "https://api.openai.com/v1"
DEFAULT_TEMPERATURE: Final[Mapping[Role, float]] = {
    Role.IDEAS: 0.8,
    Role.WRITE: 0.2,
    Role.REPAIR: 0.2,
    Role.REFINE: 0.4,
}
"""Ideas should differ from each other; code should run; a program that no words came before should do both."""
_CONNECT_S: Final = 10.0


class OpenAIModel:
    """Answers from a server. Safe to use from several tasks, and in one event loop after another."""

    stays_out = False

    def __init__(
        self,
        model: str,
        base_url: str | None,
        api_key: str | None,
        *,
        temperature: Mapping[Role, float] = DEFAULT_TEMPERATURE,
        timeout_s: float = 600.0,
        deadline_s: float = 1800.0,
        journal: Path | None = None,
    ) -> None:
        """Prepares; nothing is sent yet.

        Args:
            model: as the server names it.
            base_url: ends in `/v1` as a rule; None for OpenAI.
            api_key: None for a server of one's own that wants none.
            temperature: per role; a role that is not in it gets the server's default.
            timeout_s: longest silence of the server within one attempt.
            deadline_s: no attempt starts later than this after the first.
            journal: folder of this run alone, in which replies are kept until they are `taken`; None: nowhere.

        Raises:
            ModelUnavailable: OpenAI without a key.
        """
        if base_url is None and not api_key:
            raise ModelUnavailable("no key for OpenAI: set OPENAI_API_KEY, or AGENTGEN_BASE_URL for another server")
        self._model = model
        self._server = base_url or OPENAI_URL
        self._api_key = api_key or "none"  # the SDK insists on one; servers without keys ignore it
        self._temperature = temperature
        self._timeout = openai.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
        self._deadline_s = deadline_s
        self._journal = Journal(journal) if journal else None
        self._refused: frozenset[str] = frozenset()
        self._heard = False
        """Whether the server ever sent anything."""

    @property
    def name(self) -> str:
        """The model, as the server names it."""
        return self._model

    async def kept(self, request: ChatRequest) -> ChatReply | None:
        """Returns what the journal has; see `models.chat`.

        Raises:
            ModelUnavailable: the journal cannot be read.
        """
        return self._journal.reply(request.id) if self._journal else None

    async def ask(self, request: ChatRequest) -> ChatReply:
        """Returns the model's answer, with a `fault` where it is not whole: it was paid all the same.

        Raises:
            PromptRefused: this request is too long, or against the server's rules.
            ModelUnavailable: refused, unreachable or no chat completion, after the retries that made sense; or the
                journal cannot be used, and nothing was sent.
        """
        if self._journal is None:
            return await self._asked(request, Page(None))
        with self._journal.page(request.id) as page:
            return await self._asked(request, page)

    async def taken(self, request: ChatRequest) -> None:
        """Removes the reply to `request` from the journal."""
        if self._journal is not None:
            self._journal.drop(request.id)

    def refuse(self, request: ChatRequest, reason: str) -> None:
        """Nothing: the next request tells the model itself."""

    def price_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Returns what so many tokens cost by the price list, with nothing cached; None for models not in it."""
        return self._listed_usd(Usage(input_tokens=input_tokens, output_tokens=output_tokens))

    async def _asked(self, request: ChatRequest, page: Page) -> ChatReply:
        retrying = AsyncRetrying(
            sleep=anyio.sleep,
            retry=retry_if_exception(worth_retrying),
            wait=wait_s,
            stop=Attempts(lambda: self._heard) | stop_before_delay(self._deadline_s),
            before_sleep=tell_of_a_long_wait,
            reraise=True,
        )
        try:
            async with self._client() as client:
                return await retrying(self._attempt, client, request, page)
        except openai.OpenAIError as error:
            if refuses_prompt(error):
                raise PromptRefused(explain(error, self._model, self._server)) from error
            raise ModelUnavailable(explain(error, self._model, self._server)) from error
        except NoCompletion as error:
            raise ModelUnavailable(
                f"{self._server} answered with something that is no chat completion ({one_line(str(error))}): "
                "check AGENTGEN_BASE_URL"
            ) from error

    def _client(self) -> openai.AsyncOpenAI:
        """Returns a new client: one that was used in an event loop is of no use in another, nor closed there."""
        return openai.AsyncOpenAI(
            base_url=self._server,
            api_key=self._api_key,
            max_retries=0,
            timeout=self._timeout,
            http_client=openai.DefaultAsyncHttpxClient(verify=_tls()),
        )

    async def _attempt(self, client: openai.AsyncOpenAI, request: ChatRequest, page: Page) -> ChatReply:
        """Returns the reply, or what came of it. Raises only while nothing came, so nothing is paid twice."""
        heard, why = _Heard(page, self._model, self._cost_usd), "the stream ended early"
        try:
            async with AsyncExitStack() as opened:
                response = await self._send(client, request, opened)
                async with aclosing(chunks_of(response)) as chunks:
                    async for chunk in chunks:
                        heard.add(chunk)
                if not heard.begun:
                    raise NothingCame(response.http_request)
        except BrokeOff as error:
            why = str(error)
        except (openai.APIError, NoCompletion) as error:
            if not heard.begun:
                raise
            why = str(error)
        reply = whole_reply(heard.pieces, heard.end())
        if reply.fault is not None:
            self._warn(request, reply, why if reply.fault is Fault.BROKEN else reply.text)
        return reply

    async def _send(
        self, client: openai.AsyncOpenAI, request: ChatRequest, opened: AsyncExitStack
    ) -> AsyncAPIResponse[Any]:
        """Returns the response, which `opened` closes, without its body."""
        while True:
            options = self._options(request.role)
            call = client.chat.completions.with_streaming_response.create(
                model=self._model,
                messages=[
                    {"role": "system", "content": request.system},
                    {"role": "user", "content": request.prompt},
                ],
                stream=True,
                extra_body=options,
            )
            try:
                response = await opened.enter_async_context(call)
                self._heard = True
                return response
            except openai.APIStatusError as error:
                self._heard = True
                refused = refused_option(error, options)
                if refused is None:
                    raise
                self._refused |= {refused}

    def _options(self, role: Role) -> dict[str, object]:
        """Returns the parameters that not every server wants."""
        options = {"stream_options": {"include_usage": True}, "temperature": self._temperature.get(role)}
        return {name: value for name, value in options.items() if value is not None and name not in self._refused}

    def _warn(self, request: ChatRequest, reply: ChatReply, why: str) -> None:
        tokens = "an unknown number of" if reply.output_tokens is None else reply.output_tokens
        place = f"{request.role.value}-{request.target}-{request.id}"
        _log.warning(
            "the reply of %s to %s is %s after %s tokens: %s", self._model, place, reply.fault, tokens, one_line(why)
        )

    def _cost_usd(self, used: Used) -> float | None:
        """Returns what the server says it cost, else by the price list; None for servers and models not in it."""
        if used.cost_usd is not None or used.input_tokens is None or used.output_tokens is None:
            return used.cost_usd
        return self._listed_usd(
            Usage(
                input_tokens=used.input_tokens,
                cache_read_tokens=min(used.cached_tokens or 0, used.input_tokens),
                output_tokens=used.output_tokens,
            )
        )

    def _listed_usd(self, tokens: Usage) -> float | None:
        try:
            return float(calc_price(tokens, model_ref=self._model, provider_api_url=self._server).total_price)
        except LookupError:
            return None


@cache
def _tls() -> ssl.SSLContext:
    """Made once, which takes a client from 40 ms to 2 ms."""
    return httpx2.create_ssl_context()


class _Heard:
    """What arrived in one attempt. Each piece is kept the moment that it comes, and the end once the server says that
    it is one: the SDK waits for up to 0.1 s more."""

    def __init__(self, page: Page, model: str, cost_usd: Callable[[Used], float | None]) -> None:
        self._page = page
        self._model = model
        self._cost_usd = cost_usd
        self._start_s = time.monotonic()
        self._finish_reason: str | None = None
        self._used = Used()
        self.pieces: list[Piece] = []

    @property
    def begun(self) -> bool:
        """Whether anything came that was paid."""
        return bool(self.pieces) or self._finish_reason is not None or self._used != Used()

    def add(self, chunk: Chunk) -> None:
        if chunk.piece:
            self._page.add(chunk.piece)
            self.pieces.append(chunk.piece)
        self._finish_reason = chunk.finish_reason or self._finish_reason
        self._used = chunk.used or self._used
        if self._finish_reason is not None:
            self.end()

    def end(self) -> End:
        """Keeps and returns what is known of the end by now."""
        end = End(
            model=self._model,
            finish_reason=self._finish_reason,
            used=self._used.model_copy(update={"cost_usd": self._cost_usd(self._used)}),
            seconds=time.monotonic() - self._start_s,
        )
        self._page.end(end)
        return end
