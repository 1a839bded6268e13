"""Reads what a model answered. An answer that cannot be used is a value that says why; the model is then told.

What a model thought is no answer: where a server leaves it in the text (`<think>...</think>`, or the end of it alone,
where a template began it), what follows it counts.

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
from agentgen.records.idea import PREREQUISITE_CHARACTERS, PREREQUISITES, Category, Idea

_FENCE = re.compile(r"^ {0,3}(?P<ticks>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
_FAULTS: Final[Mapping[Fault, str]] = {
    Fault.LENGTH: "The answer was cut off at the length limit: be briefer.",
    Fault.BROKEN: "The connection broke off within the answer.",
    Fault.REFUSED: "The answer was a refusal.",
    Fault.FILTERED: "A content filter withheld the answer.",
    Fault.EMPTY: "The answer was empty.",
}
_DEFINES_MODEL = re.compile(r"^class[ \t]+ModelNew\b", re.MULTILINE)
_THOUGHT: Final = "</think>"
_OPENING = re.compile(r"\{|\[(?=\s*\{)")
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')


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
    usable: tuple[Idea, ...] = ()
    refusal = Unusable('There was no JSON object {"ideas": [...]} in it.')
    for found in _lists(_answer(reply.text)):
        ideas = found if isinstance(found, Unusable) else _ideas(found, parent)
        if isinstance(ideas, Unusable):
            refusal = ideas
        else:
            usable = ideas  # the last one: those before it are drafts, or the form that was asked for
    return usable[:count] or _blame_fault(refusal, reply)


def parse_source(reply: ChatReply) -> str | Unusable:
    """Returns the one fenced block that defines `ModelNew`, as it came, ending in one newline."""
    blocks = list(_blocks(_answer(reply.text)))
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


def _answer(text: str) -> str:
    """Returns what was said after the thinking; all of it where nothing was."""
    said = text.rpartition(_THOUGHT)[2]
    return said if said.strip() else text


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


def _lists(text: str) -> Iterator[list[Any] | Unusable]:
    """Yields the lists of ideas, wherever in the text they stand, and why what should have been one could not be read:
    JSON objects with a list "ideas", and bare lists of objects with a "category".

    Line breaks within strings are taken as they are, and so are backslashes that escape nothing (TeX's).
    """
    text = _BACKSLASH.sub(lambda found: found[0] if found[1] else "\\\\", text)
    decoder = json.JSONDecoder(strict=False, parse_constant=_refuse_constant)
    place = 0
    while opening := _OPENING.search(text, place):
        start, place = opening.start(), opening.end()
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            if text[place : place + 63].lstrip().startswith('"ideas"'):
                yield Unusable(f"The JSON object could not be read: {error}.")
            continue
        items = _items(value)
        if items is not None:
            yield items
            place = end


def _items(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        items = value.get("ideas")
        return items if isinstance(items, list) else None
    return value if any(isinstance(item, dict) and "category" in item for item in value) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not allowed")


def _ideas(items: list[Any], parent: str) -> tuple[Idea, ...] | Unusable:
    ideas: dict[str, Idea] = {}
    faults: list[str] = []
    for item in items:
        idea = _idea(item, parent)
        if isinstance(idea, Unusable):
            faults.append(idea.reason)
        else:
            ideas.setdefault(_normalised(idea.title), idea)
    return tuple(ideas.values()) or Unusable(faults[0] if faults else 'The list "ideas" is empty.')


def _idea(item: object, parent: str) -> Idea | Unusable:
    if not isinstance(item, dict):
        return Unusable("Each idea must be a JSON object.")
    category = _line(item.get("category")).lower()
    if category not in {known.value for known in Category}:
        return Unusable(f'"category" must be one of {", ".join(known.value for known in Category)}; not {category!r}.')
    predicted = item.get("predicted_speedup")
    try:
        return Idea(
            parent=parent,
            category=Category(category),
            title=_line(item.get("title")),
            reasoning=_text(item.get("reasoning")),
            prerequisites=_prerequisites(item.get("prerequisites")),
            # A forecast is no reason to lose an idea; the upper end keeps 1e999 (infinity) out.
            predicted_speedup=predicted if isinstance(predicted, int | float) and 0 < predicted < 1e6 else None,
        )
    except ValidationError as error:
        first = error.errors()[0]
        return Unusable(f"An idea does not keep the format: {'.'.join(map(str, first['loc']))}: {first['msg']}.")


def _prerequisites(given: object) -> tuple[str, ...]:
    """Returns as many as an idea may have, each cut to what it may have: they are no reason to lose one."""
    several = given if isinstance(given, list) else [given]
    lines = (_line(one)[:PREREQUISITE_CHARACTERS] for one in several if isinstance(one, str))
    return tuple(line for line in lines if line)[:PREREQUISITES]


def _text(given: object) -> str:
    return "" if given is None else str(given).strip()


def _line(given: object) -> str:
    return " ".join(_text(given).split())


def _normalised(title: str) -> str:
    return " ".join(re.findall(r"\w+", title.casefold()))
