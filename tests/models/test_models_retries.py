"""How long is waited before a request is tried again."""

from __future__ import annotations

import email.utils
import time
from statistics import mean

import httpx2
import openai
import pytest
from tenacity import AsyncRetrying, RetryCallState

from agentgen.models.retries import retry_after_s, wait_s


def refusal(**headers: str) -> openai.APIStatusError:
    request = httpx2.Request("POST", "http://127.0.0.1:9/v1/chat/completions")
    response = httpx2.Response(429, headers={name.replace("_", "-"): said for name, said in headers.items()})
    response.request = request
    return openai.RateLimitError("slow down", response=response, body=None)


def waits_s(attempt: int, error: openai.APIStatusError) -> list[float]:
    state = RetryCallState(AsyncRetrying(), None, (), {})
    state.set_exception((openai.APIError, error, None))
    state.attempt_number = attempt
    return [wait_s(state) for _ in range(200)]


@pytest.mark.parametrize("value", ["0", "-3", "0.0", email.utils.formatdate(0, usegmt=True), "soon", "inf", "nan"])
def test_no_time_is_no_wish(value: str) -> None:
    assert retry_after_s(refusal(retry_after=value)) is None
    assert retry_after_s(refusal(retry_after_ms="0", retry_after="5")) == 5


def test_waits_grow_to_a_minute_and_differ() -> None:
    assert max(waits_s(1, refusal())) < 0.5
    for error in (refusal(), refusal(retry_after="0"), refusal(retry_after="0.01")):
        long = waits_s(20, error)
        assert 0 < min(long) < max(long) <= 60
        assert 20 < mean(long) < 40


def test_a_wish_is_the_least_that_is_waited() -> None:
    assert 90 <= min(waits_s(20, refusal(retry_after="90"))) < max(waits_s(20, refusal(retry_after="90"))) <= 99
    when = email.utils.formatdate(time.time() + 3600, usegmt=True)
    assert min(waits_s(1, refusal(retry_after=when))) > 3500
