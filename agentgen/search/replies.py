"""Reads what a model answered. An answer that cannot be used is a value that says why; the model is then told.

Nothing is guessed: two blocks that both define `ModelNew` are refused instead of one being picked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from agentgen.records.chat import ChatReply, Fault
from agentgen.records.idea import Category, Idea

_FENCE = re.compile(r"^ {0,3}(?P<ticks>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_FAULTS: Final[Mapping[Fault, str]] = {
    Fault.LENGTH: "The answer was cut off at the length limit: be briefer.",
    Fault.BROKEN: "The connection broke off within the answer.",
    Fault.REFUSED: "The answer was a refusal.",
    Fault.FILTERED: "A content filter withheld the answer.",
    Fault.EMPTY: "The answer was empty.",
}
_DEFINES_MODEL = re.compile(r"^class[ \t]+ModelNew\b", re.MULTILINE)


@dataclass(frozen=True)
class Unusable:
    """An answer without what was asked for."""

    reason: str
    """For the model: what was wrong, in one sentence."""


@dataclass(frozen=True)
class _Block:
    text: str
    closed: bool


def parse_ideas(reply: ChatReply, parent: str, count: int) -> tuple[Idea, ...] | Unusable:
    """Returns the first `count` ideas of an answer, without those that repeat a title.

    A single idea that breaks the format is left out as long as another one keeps it.
    """
    found = _ideas_list(reply.text)
    if isinstance(found, Unusable):
        return _blame_fault(found, reply)
    ideas: dict[str, Idea] = {}
    faults: list[str] = []
    for item in found:
        idea = _idea(item, parent)
        if isinstance(idea, Unusable):
            faults.append(idea.reason)
        else:
            ideas.setdefault(_normalised(idea.title), idea)
    if not ideas:
        return Unusable(faults[0] if faults else 'The list "ideas" is empty.')
    return tuple(ideas.values())[:count]


def parse_source(reply: ChatReply) -> str | Unusable:
    """Returns the one fenced block that defines `ModelNew`, as it came, ending in one newline."""
    blocks = list(_blocks(reply.text))
    fitting = [block for block in blocks if _DEFINES_MODEL.search(block.text)]
    if len(fitting) == 1 and fitting[0].closed:
        return fitting[0].text.rstrip() + "\n"
    if not blocks:
        refusal = Unusable("There was no fenced block (```python ... ```) in it.")
    elif not fitting:
        refusal = Unusable("No fenced block in it defines `class ModelNew`.")
    elif len(fitting) > 1:
        refusal = Unusable(f"{len(fitting)} fenced blocks define `class ModelNew`; exactly one must.")
    else:
        refusal = Unusable("The fenced block with `class ModelNew` is not closed.")
    return _blame_fault(refusal, reply)


def _blame_fault(refusal: Unusable, reply: ChatReply) -> Unusable:
    return refusal if reply.fault is None else Unusable(f"{refusal.reason} {_FAULTS[reply.fault]}")


def _blocks(text: str) -> Iterator[_Block]:
    """Yields fenced blocks as CommonMark reads them: a fence is closed by one of its kind that is at least as long and
    bare, so fences within a longer fence are text."""
    ticks: str | None = None
    lines: list[str] = []
    # Not splitlines(): form feeds and the like do not end a line of source.
    for line in text.replace("\r\n", "\n").split("\n"):
        fence = _FENCE.match(line)
        if ticks is None:
            if fence:
                ticks, lines = fence["ticks"], []
        elif fence and fence["ticks"].startswith(ticks) and not fence["info"].strip():
            yield _Block("\n".join(lines), closed=True)
            ticks = None
        else:
            lines.append(line)
    if ticks is not None:
        yield _Block("\n".join(lines), closed=False)


def _ideas_list(text: str) -> list[Any] | Unusable:
    """Finds the first JSON object with a list "ideas", wherever in the text it stands."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    refusal = Unusable('There was no JSON object {"ideas": [...]} in it.')
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            if text[start + 1 : start + 64].lstrip().startswith('"ideas"'):
                refusal = Unusable(f"The JSON object could not be read: {error}.")
        else:
            if isinstance(value, dict) and isinstance(value.get("ideas"), list):
                return value["ideas"]
        start = text.find("{", start + 1)
    return refusal


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


def _idea(item: object, parent: str) -> Idea | Unusable:
    if not isinstance(item, dict):
        return Unusable("Each idea must be a JSON object.")
    category = " ".join(str(item.get("category", "")).lower().split())
    if category not in {known.value for known in Category}:
        return Unusable(f'"category" must be one of {", ".join(known.value for known in Category)}; not {category!r}.')
    predicted = item.get("predicted_speedup")
    try:
        return Idea(
            parent=parent,
            category=Category(category),
            title=" ".join(str(item.get("title", "")).split()),
            reasoning=str(item.get("reasoning", "")).strip(),
            # A forecast is no reason to lose an idea; the upper end keeps 1e999 (infinity) out.
            predicted_speedup=predicted if isinstance(predicted, int | float) and 0 < predicted < 1e6 else None,
        )
    except ValidationError as error:
        first = error.errors()[0]
        return Unusable(f"An idea does not keep the format: {'.'.join(map(str, first['loc']))}: {first['msg']}.")


def _normalised(title: str) -> str:
    return " ".join(re.findall(r"\w+", title.casefold()))
