"""One exchange with a model as two Markdown files, shared by the mailbox and the recordings.

`<role>-<target>-<id>.request.md` holds a request: front matter, how to answer, the system text, the prompt. A person
who has no other document can answer it by writing `<role>-<target>-<id>.reply.md` beside it.

The two texts of a request may hold anything, also fences, `---` and headings that look like ours. So the front matter
says how many lines the system text has, and nothing is searched for in the texts.

Not covered: a reply that is still being written is read as far as it goes (`mailbox` waits for the file to rest).
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pydantic import ValidationError

from agentgen.errors import BadInput
from agentgen.records.base import Record
from agentgen.records.chat import ChatReply, ChatRequest

_HOW_TO_ANSWER: Final = """\
> **How to answer.** Write your reply, as plain text exactly as a chat model would say it, into the file
> `{reply}` beside this one. The two sections below are all you need to know.
> If you like, start the reply with front matter (between two lines of `---`) that has any of
> `model`, `input_tokens`, `output_tokens`, `cost_usd`; without it the whole file is the reply.
"""
_SYSTEM_HEADING: Final = "\n# System\n\n"
_PROMPT_HEADING: Final = "\n\n# Prompt\n\n"
_FENCE: Final = "---"
_PLACE: Final = ("role", "problem", "target", "parent", "nth", "attempt", "round")
_FROM_0: Final = ("nth", "round")
"""Left out where they are 0, as most are."""


class ReplyHeader(Record):
    """Front matter of a reply file; every field may be left out."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


def request_path(folder: Path, request: ChatRequest) -> Path:
    """Returns where `request` lies in `folder`."""
    return folder / f"{_stem(request)}.request.md"


def reply_path(folder: Path, request: ChatRequest) -> Path:
    """Returns where the reply to `request` is looked for in `folder`."""
    return folder / f"{_stem(request)}.reply.md"


def format_request(request: ChatRequest) -> str:
    """Returns the text of a request file."""
    place = request.model_dump(mode="json", include=set(_PLACE))
    header = {key: place[key] for key in _PLACE if key not in _FROM_0 or place[key]} | {
        "id": request.id,
        "system_lines": request.system.count("\n") + 1,
    }
    front = yaml.safe_dump(header, sort_keys=False, width=10_000)
    how = _HOW_TO_ANSWER.format(reply=f"{_stem(request)}.reply.md")
    return f"{_FENCE}\n{front}{_FENCE}\n\n{how}{_SYSTEM_HEADING}{request.system}{_PROMPT_HEADING}{request.prompt}\n"


def write_request(folder: Path, request: ChatRequest) -> Path:
    """Writes the request file unless there is one, and returns its path. Makes the folder.

    Raises:
        OSError: the folder cannot be made or written.
    """
    path = request_path(folder, request)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(path, format_request(request))
    return path


def format_reply(reply: ChatReply, default_model: str) -> str:
    """Returns the text of a reply file from which `parse_reply` makes the same text, model, tokens and cost."""
    header = {
        "model": None if reply.model == default_model else reply.model,
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "cost_usd": reply.cost_usd,
    }
    said = {name: value for name, value in header.items() if value is not None}
    if not said and parse_reply(reply.text, "", default_model).text == reply.text:
        return reply.text
    said = said or {"model": default_model}  # the text itself starts like a header
    return f"{_FENCE}\n{yaml.safe_dump(said, sort_keys=False)}{_FENCE}\n{reply.text}"


def reply_as_kept(reply: ChatReply) -> ChatReply:
    """Returns what of a reply a file keeps."""
    return ChatReply.model_validate(reply.model_dump(include={"text", *ReplyHeader.model_fields}))


def write_reply(folder: Path, request: ChatRequest, reply: ChatReply, default_model: str) -> bool:
    """Writes the reply file unless there is one, and returns whether it did.

    Raises:
        OSError: the folder cannot be written.
    """
    path = reply_path(folder, request)
    if path.exists():
        return False
    _write_whole(path, format_reply(reply, default_model))
    return True


def write_error(folder: Path, request: ChatRequest, reason: str) -> Path:
    """Writes what is wrong with the reply to a request beside it, and returns the file.

    Raises:
        OSError: the folder cannot be written.
    """
    path = folder / f"{_stem(request)}.error.md"
    _write_whole(path, f"The reply in `{_stem(request)}.reply.md` cannot be used: {reason}\n")
    return path


def clear_error(folder: Path, request: ChatRequest) -> None:
    """Removes what `write_error` left: the reply was corrected."""
    (folder / f"{_stem(request)}.error.md").unlink(missing_ok=True)


def parse_reply(text: str, source: str, default_model: str) -> ChatReply:
    """Returns the reply that a reply file holds.

    Only a mapping of nothing but the fields of `ReplyHeader`, at the very top, is front matter: a reply may well
    start with a horizontal rule.

    Raises:
        BadInput: a field of the front matter has an impossible value.
    """
    mapping, body = _split_front_matter(text)
    if not mapping or not mapping.keys() <= ReplyHeader.model_fields.keys():
        return ChatReply(text=text, model=default_model)
    try:
        header = ReplyHeader.model_validate(mapping)
    except ValidationError as error:
        raise BadInput(f"front matter of {source}: {_first_fault(error)}") from error
    return ChatReply(
        text=body,
        model=header.model or default_model,
        input_tokens=header.input_tokens,
        output_tokens=header.output_tokens,
        cost_usd=header.cost_usd,
    )


def read_reply(path: Path, default_model: str) -> ChatReply | None:
    """Returns the reply in a file; None where there is no file or nothing in it.

    Bytes that are no UTF-8 are replaced, a byte order mark is dropped: people's editors differ.

    Raises:
        BadInput: the front matter has an impossible value.
        OSError: the file is there and cannot be read.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
    except FileNotFoundError:
        return None
    return parse_reply(text, str(path), default_model) if text.strip() else None


def _stem(request: ChatRequest) -> str:
    target = re.sub(r"[^A-Za-z0-9_+-]", "_", request.target)  # a target may not lead out of the folder
    return f"{request.role.value}-{target}-{request.id}"


def _split_front_matter(text: str) -> tuple[dict[str, Any] | None, str]:
    """Returns the mapping between the first line `---` and the next one, and what follows; None where none is."""
    match = re.match(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", text, re.DOTALL | re.MULTILINE)
    if match is None:
        return None, text
    try:
        loaded: object = yaml.safe_load(match[1])
    except yaml.YAMLError:
        return None, text
    if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in cast(dict[object, object], loaded)):
        return None, text
    return cast(dict[str, Any], loaded), text[match.end() :]


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"


def _write_whole(path: Path, text: str) -> None:
    """Writes all of `text` or nothing. Not with `tempfile`: its files are private, and another user may answer."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
