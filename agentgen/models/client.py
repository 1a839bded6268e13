"""A model behind any server of OpenAI's `chat.completions`: OpenAI, OpenRouter, vLLM, SGLang, llama.cpp, Ollama.

Only the portable part of the protocol is used: messages in, text out. No streaming, no tools, no response format, no
limit of tokens (its name differs between servers; each has a default).

Not covered: a reply that breaks off (`finish_reason` "length") raises and its tokens are in the message only.

Importing this imports openai (about half a second).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, cast

import openai
from genai_prices import Usage, calc_price
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_before_delay

from agentgen.errors import ModelUnavailable
from agentgen.models.retries import explain, refuses_temperature, wait_s, worth_retrying
from agentgen.records.chat import ChatReply, ChatRequest, Role

OPENAI_URL: Final = "https://api.openai.com/v1"
DEFAULT_TEMPERATURE: Final[Mapping[Role, float]] = {Role.IDEAS: 0.8, Role.WRITE: 0.2, Role.REPAIR: 0.2}
"""Ideas should differ from each other; code should run."""
_CONNECT_S: Final = 10.0
_ATTEMPTS: Final = 6
"""Each may be a paid generation, also one that timed out."""


class OpenAIModel:
    """Answers from a server. Safe to use from several threads."""

    def __init__(
        self,
        model: str,
        base_url: str | None,
        api_key: str | None,
        *,
        temperature: Mapping[Role, float] = DEFAULT_TEMPERATURE,
        timeout_s: float = 600.0,
        deadline_s: float = 1800.0,
    ) -> None:
        """Prepares a client; nothing is sent yet.

        Args:
            model: as the server names it.
            base_url: ends in `/v1` as a rule; None for OpenAI.
            api_key: None for a server of one's own that wants none.
            temperature: per role; a role that is not in it gets the server's default.
            timeout_s: longest silence of the server within one attempt.
            deadline_s: no attempt starts later than this after the first.

        Raises:
            ModelUnavailable: OpenAI without a key.
        """
        if base_url is None and not api_key:
            raise ModelUnavailable("no key for OpenAI: set OPENAI_API_KEY, or AGENTGEN_BASE_URL for another server")
        self._model = model
        self._server = base_url or OPENAI_URL
        self._temperature = temperature
        self._temperature_refused = False
        self._deadline_s = deadline_s
        self._client = openai.OpenAI(
            base_url=self._server,
            api_key=api_key or "none",  # the SDK insists on one; servers without keys ignore it
            max_retries=0,
            timeout=openai.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
        )

    @property
    def name(self) -> str:
        """The model, as the server names it."""
        return self._model

    def ask(self, request: ChatRequest) -> ChatReply:
        """Returns the model's answer.

        Raises:
            ModelUnavailable: refused, unreachable, cut off, filtered or empty, after the retries that made sense.
        """
        retrying = Retrying(
            retry=retry_if_exception(worth_retrying),
            wait=wait_s,
            stop=stop_after_attempt(_ATTEMPTS) | stop_before_delay(self._deadline_s),
            reraise=True,
        )
        try:
            completion, seconds = retrying(self._complete, request)
        except openai.OpenAIError as error:
            raise ModelUnavailable(explain(error, self._model, self._server)) from error
        except ValueError as error:  # the SDK lets a broken JSON body through as it is
            raise ModelUnavailable(self._not_a_completion(f"broken JSON, {error}")) from error
        return self._reply(completion, seconds)

    def refuse(self, request: ChatRequest, reason: str) -> None:
        """Nothing: the next request tells the model itself."""

    def price_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Returns what so many tokens cost by the price list, with nothing cached; None for models not in it."""
        return self._listed_usd(Usage(input_tokens=input_tokens, output_tokens=output_tokens))

    def _complete(self, request: ChatRequest) -> tuple[object, float]:
        """Returns the server's answer, a `ChatCompletion` if it keeps to the protocol, and the seconds it took."""
        start_s = time.monotonic()
        try:
            completion = self._send(request, with_temperature=not self._temperature_refused)
        except openai.APIStatusError as error:
            if self._temperature_refused or not refuses_temperature(error):
                raise
            self._temperature_refused = True
            completion = self._send(request, with_temperature=False)
        return completion, time.monotonic() - start_s

    def _send(self, request: ChatRequest, *, with_temperature: bool) -> object:
        temperature = self._temperature.get(request.role) if with_temperature else None
        return self._client.chat.completions.create(
            model=self._model,
            messages=[
                {"role": "system", "content": request.system},
                {"role": "user", "content": request.prompt},
            ],
            temperature=openai.omit if temperature is None else temperature,
        )

    def _reply(self, completion: object, seconds: float) -> ChatReply:
        # A body that is not declared as JSON comes back as text; OpenRouter reports errors of its providers in a
        # body of status 200 without choices.
        if not isinstance(completion, ChatCompletion):
            raise ModelUnavailable(self._not_a_completion(f"{str(completion)[:100]!r}"))
        choices = cast(list[Choice] | None, completion.choices)
        if not choices or cast(object, choices[0].message) is None:
            error = (completion.model_extra or {}).get("error")
            raise ModelUnavailable(self._not_a_completion(str(error) if error else "it has no choices"))
        choice = choices[0]
        usage = completion.usage
        text = choice.message.content or ""
        extra = choice.message.model_extra or {}
        reasoning = extra.get("reasoning") or extra.get("reasoning_content") or ""
        self._check_whole(choice, text, usage)
        return ChatReply(
            text=_storable(text),
            model=self._model,
            reasoning=_storable(str(reasoning)),
            input_tokens=usage.prompt_tokens if usage else None,
            output_tokens=usage.completion_tokens if usage else None,
            cost_usd=self._cost_usd(usage) if usage else None,
            seconds=seconds,
            finish_reason=choice.finish_reason,
        )

    def _check_whole(self, choice: Choice, text: str, usage: CompletionUsage | None) -> None:
        """Raises ModelUnavailable unless the reply is there in full."""
        spent = f" after {usage.completion_tokens} tokens" if usage else ""
        if choice.finish_reason == "length":
            raise ModelUnavailable(
                f"the reply of {self._model} was truncated{spent}: raise the server's limit of output tokens or its "
                "context, or choose a model with a longer one"
            )
        if choice.finish_reason == "content_filter":
            raise ModelUnavailable(f"a content filter of {self._server} withheld the reply of {self._model}")
        if choice.message.refusal and not text:
            raise ModelUnavailable(f"{self._model} refused to answer: {' '.join(choice.message.refusal.split())}")
        if not text.strip():
            raise ModelUnavailable(f"the reply of {self._model} is empty{spent}: try again or choose another --model")

    def _cost_usd(self, usage: CompletionUsage) -> float | None:
        """Returns what the server says it cost, else by the price list; None for servers and models not in it."""
        said: object = (usage.model_extra or {}).get("cost")
        if isinstance(said, int | float):
            return float(said)
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
        return self._listed_usd(
            Usage(
                input_tokens=usage.prompt_tokens, cache_read_tokens=cached or 0, output_tokens=usage.completion_tokens
            )
        )

    def _listed_usd(self, tokens: Usage) -> float | None:
        try:
            return float(calc_price(tokens, model_ref=self._model, provider_api_url=self._server).total_price)
        except LookupError:
            return None

    def _not_a_completion(self, what: str) -> str:
        return f"{self._server} answered with something that is no chat completion ({what}): check AGENTGEN_BASE_URL"


def _storable(text: str) -> str:
    """Returns `text` without lone surrogates, which JSON can carry and neither a file nor a database can."""
    return text.encode("utf-8", errors="replace").decode()
