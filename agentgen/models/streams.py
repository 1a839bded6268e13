"""Reads the response to a streamed request, also where the server sent a whole completion instead.

Importing this imports openai (about half a second): only `client` does.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import httpx2
import openai
from openai import AsyncAPIResponse, AsyncStream

from agentgen.models.chunks import Chunk, error_of, read_chunk
from agentgen.models.retries import NothingCame


class NoCompletion(Exception):
    """What came keeps to no protocol; says what it is."""


class BrokeOff(Exception):
    """The connection ended within a body that is of no use unless it is whole."""


async def chunks_of(response: AsyncAPIResponse[Any]) -> AsyncGenerator[Chunk]:
    """Yields what arrives. A stream may end early without an exception: then no chunk had a `finish_reason`.

    Raises:
        openai.APIError: the server said so, or the connection broke.
        BrokeOff: a whole completion was broken off.
        NoCompletion: what came is no part of the protocol.
    """
    if "event-stream" not in response.headers.get("content-type", "").lower():
        yield await _whole(response)
        return
    events = await response.parse(to=AsyncStream[object])
    try:
        async for data in events:
            chunk = _chunk(data, response)
            if chunk is not None:
                yield chunk
    except (ValueError, RecursionError) as error:
        raise NoCompletion(f"broken JSON in a stream, {error}") from error


async def _whole(response: AsyncAPIResponse[Any]) -> Chunk:
    body = await _body(response)
    try:
        data: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        looks_like_json = body.lstrip()[:1] in (b"{", b"[")
        raise NoCompletion(
            f"broken JSON, {error}" if looks_like_json else repr(body.decode(errors="replace")[:100])
        ) from error
    chunk = _chunk(data, response)
    if chunk is None or (not chunk.piece and chunk.finish_reason is None):
        raise NoCompletion(repr(body.decode(errors="replace")[:100]))
    return chunk


async def _body(response: AsyncAPIResponse[Any]) -> bytes:
    body = b""
    try:
        async for part in response.iter_bytes():
            body += part
    except (httpx2.RequestError, ssl.SSLError, anyio.EndOfStream) as error:  # the SDK minds these three in streams
        if body.strip():  # blanks keep a connection open
            raise BrokeOff(f"{len(body)} bytes of a completion came: {error}") from error
        if isinstance(error, httpx2.TimeoutException):
            raise openai.APITimeoutError(request=response.http_request) from error
        raise openai.APIConnectionError(request=response.http_request) from error
    if not body.strip():
        raise NothingCame(response.http_request)
    return body


def _chunk(data: object, response: AsyncAPIResponse[Any]) -> Chunk | None:
    error = error_of(data)
    if error is not None:
        raise openai.APIError(str(error), response.http_request, body=error)
    return read_chunk(data)
