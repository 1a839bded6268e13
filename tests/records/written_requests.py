"""Reads request files back, so that what a person is asked can be compared with what was to be asked."""

from __future__ import annotations

from pathlib import Path

import yaml

from agentgen.records.chat import ChatRequest


def read_request(path: Path) -> ChatRequest:
    """Returns the request in a file of `agentgen.models.exchange`."""
    return parse_request(path.read_bytes().decode())


def parse_request(text: str) -> ChatRequest:
    """Returns the request that `format_request` wrote."""
    front, body = text.removeprefix("---\n").split("\n---\n", 1)
    header = yaml.safe_load(front)
    lines = body.split("\n# System\n\n", 1)[1].split("\n")
    count, written = header.pop("system_lines"), header.pop("id")
    prompt = "\n".join(lines[count:]).removeprefix("\n# Prompt\n\n").removesuffix("\n")
    request = ChatRequest.model_validate({**header, "system": "\n".join(lines[:count]), "prompt": prompt})
    assert request.id == written
    return request
