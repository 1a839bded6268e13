"""When a failed call to a model's server is made again, how long to wait, and what to tell the user in the end.

One policy for all: the SDK's own retries are off, so that they do not multiply with these, and so that a
`Retry-After` of any length is obeyed (the SDK gives up beyond 120 s).

Importing this imports openai (about half a second): only `client` does.
"""

from __future__ import annotations

import email.utils
import time
from typing import Final

import openai
from tenacity import RetryCallState, wait_random_exponential

_RETRIED_STATUS: Final = frozenset({408, 409, 429})
_QUOTA_CODES: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_backoff = wait_random_exponential(multiplier=0.5, max=30)


def worth_retrying(error: BaseException) -> bool:
    """Whether the same request may succeed later: lost connections, timeouts, 408, 409, 429 and 5xx.

    An exhausted quota also comes as 429; waiting does not fill it.
    """
    if isinstance(error, openai.APIConnectionError):
        return True
    if isinstance(error, openai.APIStatusError):
        return (error.status_code in _RETRIED_STATUS or error.status_code >= 500) and not _quota_exhausted(error)
    return False


def wait_s(state: RetryCallState) -> float:
    """Returns what the server asks for, with a little jitter on top, else a random exponential time."""
    error = state.outcome.exception() if state.outcome else None
    asked_s = retry_after_s(error) if isinstance(error, openai.APIStatusError) else None
    backoff_s = _backoff(state)
    return backoff_s if asked_s is None else asked_s + min(backoff_s, 0.1 * asked_s)


def retry_after_s(error: openai.APIStatusError) -> float | None:
    """Returns the seconds that a response asks to wait (RFC 9110, 10.2.3: a number or a date); None: it does not."""
    headers = error.response.headers
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(float(value) * unit_s, 0.0)
        except ValueError:
            pass
        try:
            return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
        except ValueError:
            pass
    return None


def refuses_temperature(error: openai.APIStatusError) -> bool:
    """Whether the request was refused because of `temperature`, as by models that only know their own."""
    return error.status_code in (400, 422) and "temperature" in _what_it_said(error)


def explain(error: openai.OpenAIError, model: str, server: str) -> str:
    """Returns one line: what happened and what to do.

    Args:
        error: the last one, after the retries.
        model: the model asked for.
        server: its base URL.
    """
    if isinstance(error, openai.APITimeoutError):
        return f"{model} at {server} sent nothing in time: try again later or give a longer timeout"
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return f"{server} cannot be reached ({cause}): check AGENTGEN_BASE_URL and that the server runs"
    if isinstance(error, openai.APIStatusError):
        return _explain_status(error, model, server)
    return f"{server} gave no usable answer: {_one_line(str(error))}"


def _explain_status(error: openai.APIStatusError, model: str, server: str) -> str:
    said = f"({error.status_code}: {_what_it_said(error)})"
    if _quota_exhausted(error):
        return f"the quota or credit at {server} is used up {said}: add credit or choose another --model"
    match error.status_code:
        case 401 | 403:
            return f"{server} refused the key {said}: set OPENAI_API_KEY to one that may use {model}"
        case 404:
            return f"{server} has no model {model!r} {said}: check --model and AGENTGEN_BASE_URL"
        case 429:
            asked_s = retry_after_s(error)
            wish = f" and asks to wait {asked_s:.0f} s" if asked_s else ""
            return f"{server} still limits the rate after all retries{wish} {said}: resume the run later"
        case status if status >= 500:
            return f"{server} still fails after all retries {said}: resume the run later"
        case _:
            return f"{server} refused the request to {model} {said}"


def _quota_exhausted(error: openai.APIStatusError) -> bool:
    return error.status_code == 402 or error.code in _QUOTA_CODES or "insufficient_quota" in _what_it_said(error)


def _what_it_said(error: openai.APIStatusError) -> str:
    body: object = error.body
    return _one_line(str(body) if body else error.message)


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:299] + "…"
