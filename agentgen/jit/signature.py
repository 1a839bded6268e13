"""Parameter lists, read from the source: from `extern "C" void f(const float* x, int n) {` to a `Signature`.

This is no parser of C++. It drops comments, strings and preprocessor lines, follows braces to find the functions of C
linkage that have a body, and reads their parameters one by one. Not covered: names, lists or whole functions that come
out of macros (a macro or alias that stands for one type is understood); two definitions of one name in `#if` branches
with different parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .parameter import CODES, Parameter

_KEYWORDS = frozenset(["bool", "float", "double", "char", "short", "int", "long", "unsigned", "signed"])
_NESTED = r"\([^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*\)"  # parentheses, three deep
_NOISE = re.compile(
    r'(?P<keep>extern\s*"C"|\b\d[\w\']*)|//(?:\\\n|[^\n])*|/\*.*?\*/|R"(?P<mark>[^(\s"]*)\(.*?\)(?P=mark)"|'
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|/\*.*?\*/|[^\n])*',
    re.DOTALL | re.MULTILINE,
)
_ATTRIBUTE = re.compile(rf"\b(?:__\w+__|alignas)\s*{_NESTED}|\[\[.*?\]\]", re.DOTALL)  # __launch_bounds__(256), ...
_FUNCTION = re.compile(rf"(?P<before>.*?)\b(?P<name>\w+)\s*(?P<list>{_NESTED})\s*(?:noexcept\s*)?", re.DOTALL)
_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__|struct)\b|\b(?:cuda::)?std::")
_ALIAS = re.compile(
    r"\busing\s+(\w+)\s*=\s*([\w:\s*]+);|\btypedef\s+([\w:\s*]+?)\s*\b(\w+)\s*;|"
    r"^\s*#\s*define\s+(\w+)[ \t]+([\w:*\t ]+?)\s*(?://.*)?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Signature:
    name: str
    text: str
    parameters: tuple[Parameter, ...]
    returns: str
    """struct's format letter, "" for void."""

    def convert(self, values: Sequence[Any], device: str) -> list[Any]:
        """Numbers and addresses in the order of the parameters; raises TypeError naming the parameter."""
        if len(values) != len(self.parameters):
            raise TypeError(f"{self.name} takes {len(self.parameters)} arguments, got {len(values)}: {self.text}")
        result: list[Any] = []
        for parameter, value in zip(self.parameters, values, strict=True):
            try:
                result.append(parameter.convert(value, device))
            except TypeError as error:
                position = f"{self.name}, argument {len(result) + 1} `{parameter.text}`"
                raise TypeError(f"{position}: {error}. Declared: {self.text}") from None
        return result


def _declared(text: str, aliases: Mapping[str, str]) -> Parameter:
    """Reads one declaration, such as `const float* __restrict__ x`; raises TypeError for what cannot be passed."""
    shown, plain = " ".join(text.split()), _QUALIFIER.sub(" ", text.split("=")[0])
    is_pointer = "*" in plain or "[" in plain
    words: list[str] = re.findall(r"\w+", re.split(r"[*\[]", plain)[0])
    if "*" not in plain and len(words) > 1 and words[-1] not in _KEYWORDS:
        words.pop()  # the parameter's name
    for _ in range(3):  # an alias of an alias of an alias
        expanded = _QUALIFIER.sub(" ", " ".join(aliases.get(word, word) for word in words))
        is_pointer, words = is_pointer or "*" in expanded, re.findall(r"\w+", expanded)
    kind = " ".join(sorted(word for word in words if word not in ("int", "signed"))) or "int"
    if "&" in plain or "(" in plain or not (is_pointer or (kind in CODES and "<" not in plain)):
        raise TypeError(
            f"`{shown}` cannot be passed: only numbers (int, int64_t, float, double, bool, ...) and pointers"
        )
    return Parameter(shown, "P", kind) if is_pointer else Parameter(shown, CODES[kind])


def _signature(match: re.Match[str], aliases: Mapping[str, str]) -> Signature:
    inner = match["list"][1:-1]
    hidden = re.sub(rf"<[^<>]*>|{_NESTED}", lambda nested: nested[0].replace(",", "\0"), inner)
    pieces = [] if inner.strip() in ("", "void") else [piece.replace("\0", ",") for piece in hidden.split(",")]
    text = f"{match['name']}({', '.join(' '.join(piece.split()) for piece in pieces)})"
    returns = " ".join(re.sub(r"\b(?:__global__|extern__C|extern)\b", " ", match["before"]).split())
    try:
        parameters = tuple(_declared(piece, aliases) for piece in pieces)
        result = "" if returns == "void" else _declared(f"{returns} result", aliases).code
    except TypeError as error:
        raise TypeError(f"{text}: {error}") from None
    return Signature(match["name"], text, parameters, result)


def _definitions(text: str) -> Iterator[str]:
    """The text before each function body of C linkage. `text` has no comments, strings and preprocessor lines."""
    scopes, depth, start = [False], 0, 0  # scopes: whether names have C linkage; depth: inside a body
    for match in re.finditer(r"[{};]", text):
        head, start = text[start : match.start()], match.end()
        if depth:
            depth += {"{": 1, "}": -1, ";": 0}[match[0]]
        elif match[0] == "}":
            scopes = scopes[:-1] or [False]
        elif match[0] == "{":
            head = _ATTRIBUTE.sub(" ", head).strip()
            if head == "extern__C" or re.fullmatch(r"(inline\s+)?namespace\b[\s\w:]*", head):
                scopes.append(scopes[-1] or head == "extern__C")
                continue
            depth = 1
            if scopes[-1] or "extern__C" in head:
                yield head


def read_signatures(source: str, wanted: Callable[[str], bool]) -> dict[str, Signature]:
    """By name: the functions of C linkage whose head (all before the body) is `wanted`; raises TypeError."""
    text = _NOISE.sub(lambda m: {"e": " extern__C "}.get(m["keep"][0], m["keep"]) if m["keep"] else " ", source)
    groups = (match.groups(default="") for match in _ALIAS.finditer(source))
    aliases = {new or typedef or macro: (a + b + c).strip() for new, a, b, typedef, macro, c in groups}
    found: dict[str, Signature] = {}
    for match in filter(None, map(_FUNCTION.fullmatch, filter(wanted, _definitions(text)))):
        signature = _signature(match, aliases)
        if found.setdefault(signature.name, signature) != signature:
            raise TypeError(f"{signature.text} and {found[signature.name].text}: one name may have one definition only")
    return found
