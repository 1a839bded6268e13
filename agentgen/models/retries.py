"""When a failed call to a model's server is made again, how long to wait, and what to tell the user in the end.

One policy for all: the SDK's own retries are off, so that they do not multiply with these, and so that a
`Retry-After` of any length is obeyed (the SDK gives up beyond 120 s). What was refused cost nothing and is tried again
until the deadline; what may have been paid, `ATTEMPTS` times.

Importing this imports openai (about half a second): only `client` does.
"""

from __future__ import annotations

import email.utils
import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import Final, cast

import httpx2
import openai
from tenacity import RetryCallState, wait_random_exponential
from tenacity.stop import stop_base

_log = logging.getLogger(__name__)

ATTEMPTS: Final = 6
"""That may each have been a paid generation, or that met nobody where nobody ever was: 8 s of backoff on average."""
_RETRIED_STATUS: Final = frozenset({408, 409, 429})
_GAVE_UP_WAITING: Final = frozenset({408, 504, 524})
"""Said of a model that was asked and is silent, by whoever stands before it."""
_STATUS_OF_CODE: Final = {"server_error": 500, "rate_limit_exceeded": 429}
"""Words that servers use in the `code` or `type` of an error that comes under status 200."""
_OF_PROMPTS: Final = (
    "context_length",
    "context length",
    "context size",
    "context window",
    "too long",
    "content_filter",
)
"""What OpenAI, vLLM, SGLang, llama.cpp and OpenRouter say of prompts."""
_QUOTA_CODES: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_backoff = wait_random_exponential(multiplier=0.5, max=60)


class NothingCame(openai.APIConnectionError):
    """A stream ended before it had begun."""

    def __init__(self, request: httpx2.Request) -> None:
        super().__init__(message="the stream ended before anything was said", request=request)


def worth_retrying(error: BaseException) -> bool:
    """Whether the same request may succeed later: lost connections, timeouts, 408, 409, 429 and 5xx.

    An exhausted quota also comes as 429; waiting does not fill it.
    """
    if isinstance(error, openai.APIConnectionError):
        return True
    status = _status(error) if isinstance(error, openai.APIError) else None
    if status is None or _quota_exhausted(cast(openai.APIError, error)):
        return False
    return status in _RETRIED_STATUS or status >= 500


class Attempts(stop_base):
    """Counts the attempts of one request that may not go on until the deadline, and stops it after `ATTEMPTS` of them.

    Those are the ones that may have been paid, and those that met nobody (refused, no such name) while the server was
    never heard: then its address is wrong or it does not run, and half an hour changes nothing. One that was heard is
    being restarted, which takes minutes where it loads a large model.
    """

    def __init__(self, heard: Callable[[], bool]) -> None:
        """Takes who knows whether the server ever sent anything."""
        self._heard = heard
        self._counted = 0

    def __call__(self, retry_state: RetryCallState) -> bool:
        """Implements a condition of tenacity, which asks once after each attempt that failed."""
        error = retry_state.outcome.exception() if retry_state.outcome else None
        self._counted += _may_be_paid(error) or (_met_nobody(error) and not self._heard())
        return self._counted >= ATTEMPTS


def wait_s(state: RetryCallState) -> float:
    """Returns what the server asks for, with a little jitter on top, at least a random exponential time: one that asks
    for 0.01 s each time would be asked 180,000 times before the deadline."""
    error = state.outcome.exception() if state.outcome else None
    asked_s = retry_after_s(error) if isinstance(error, openai.APIError) else None
    backoff_s = _backoff(state)
    return backoff_s if asked_s is None else max(backoff_s, asked_s + min(backoff_s, 0.1 * asked_s))


def tell_of_a_long_wait(state: RetryCallState) -> None:
    """Says once that a request is still tried: it may be for half an hour."""
    error = state.outcome.exception() if state.outcome else None
    if state.attempt_number == ATTEMPTS and isinstance(error, openai.APIError):
        said, host = one_line(str(error)), error.request.url.host
        _log.warning(
            "%s has failed %d times (%s) and is tried on; Ctrl-C stops the run for later", host, ATTEMPTS, said
        )


def retry_after_s(error: openai.APIError) -> float | None:
    """Returns the seconds that a response asks to wait (RFC 9110, 10.2.3: a number or a date); None: it does not. 0 and
    a date in the past ask for nothing."""
    headers = error.response.headers if isinstance(error, openai.APIStatusError) else {}
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            asked_s = float(value) * unit_s
        except ValueError:
            asked_s = _until_s(value)
        if asked_s is not None and math.isfinite(asked_s) and asked_s > 0:
            return asked_s
    return None


def _until_s(date: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return None


def refused_option(error: openai.APIStatusError, options: Iterable[str]) -> str | None:
    """Returns the first of some optional parameters that the server did not want, going by what it says."""
    if error.status_code not in (400, 422):
        return None
    return next((option for option in options if option in _what_it_said(error)), None)


def refuses_prompt(error: openai.OpenAIError) -> bool:
    """Whether this very request is what the server refuses: too long for the model's context, or against its rules."""
    if not isinstance(error, openai.APIStatusError) or error.status_code not in (400, 413, 422):
        return False
    said = f"{error.code} {_what_it_said(error)}".lower()
    return error.status_code == 413 or any(sign in said for sign in _OF_PROMPTS)


def explain(error: openai.OpenAIError, model: str, server: str) -> str:
    """Returns one line: what happened and what to do.

    Args:
        error: the last one, after the retries.
        model: the model asked for.
        server: its base URL.
    """
    if isinstance(error, openai.APITimeoutError):
        return f"{model} at {server} sent nothing in time: try again later or give a longer timeout"
    if isinstance(error, NothingCame):
        return f"{server} broke off before {model} had said anything, in all attempts: resume the run later"
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return f"{server} cannot be reached ({one_line(str(cause))}): check AGENTGEN_BASE_URL and that the server runs"
    if isinstance(error, openai.APIError):
        return _explain_status(error, model, server)
    return f"{server} gave no usable answer: {one_line(str(error))}"


def one_line(text: str) -> str:
    """Returns `text` for use within a message: without line ends, at most 300 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:299] + "…"


def _may_be_paid(error: BaseException | None) -> bool:
    """Whether a model may have worked for an attempt: the request arrived, and no answer did."""
    if isinstance(error, openai.APIConnectionError):
        return not _met_nobody(error)
    return isinstance(error, openai.APIError) and _status(error) in _GAVE_UP_WAITING


def _met_nobody(error: BaseException | None) -> bool:
    cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else None
    return isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)


def _explain_status(error: openai.APIError, model: str, server: str) -> str:
    status = _status(error)
    said = f"({_what_it_said(error)})" if status is None else f"({status}: {_what_it_said(error)})"
    if _quota_exhausted(error):
        return f"the quota or credit at {server} is used up {said}: add credit or choose another --model"
    match status:
        case 401 | 403:
            return f"{server} refused the key {said}: set OPENAI_API_KEY to one that may use {model}"
        case 404:
            return f"{server} has no model {model!r} {said}: check --model and AGENTGEN_BASE_URL"
        case 429:
            asked_s = retry_after_s(error)
            wish = f" and asks to wait {asked_s:.0f} s" if asked_s else ""
            return f"{server} still limits the rate after all retries{wish} {said}: resume the run later"
        case int() if status >= 500:
            return f"{server} still fails after all retries {said}: resume the run later"
        case _:
            return f"{server} refused the request to {model} {said}"


def _status(error: openai.APIError) -> int | None:
    """Returns the HTTP status of an error; of one within a body of status 200, what it says itself, if anything."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code
    for said in (error.code, error.type):
        if said in _STATUS_OF_CODE:
            return _STATUS_OF_CODE[said]
        if said and len(said) == 3 and said.isdecimal():
            return int(said)
    return None


def _quota_exhausted(error: openai.APIError) -> bool:
    return _status(error) == 402 or error.code in _QUOTA_CODES or "insufficient_quota" in _what_it_said(error)


def _what_it_said(error: openai.APIError) -> str:
    body: object = error.body
    return one_line(str(body) if body else error.message)
