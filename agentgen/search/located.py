"""Errors of NVRTC, g++, Triton and Python, found again in the lines of the candidate's own file.

A compiler counts the lines of the text that `agentgen.jit` was given, Triton those of a function; a model counts those
of its file. A line is named only where what the compiler shows of it is what the file has there, and where one text can
be meant: else nothing is said, and the compiler's own words are all there is. Not covered: errors within included
headers, of the linker, and of texts that the candidate puts together.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentgen.search.literals import Literal, literals

MOST = 8
_CUT = 150
"""Characters of a line from which on its end may be missing: `agentgen.jit` cuts what a compiler shows at 200."""
_COMPILED = re.compile(r"candidate\.(cu|cpp)(?:\((\d+)\)|:(\d+):\d+): (.*)")
_QUOTED = re.compile(r"\s*\d+ \| (.*)")
_CARET = re.compile(r"\s*\^[~^]*\s*")
_ASSEMBLED = re.compile(r"PTX line (\d+) `(.*)` is from candidate\.(cu)\((\d+)\): (.*)")
_TRITON = re.compile(r".*\bat (\d+):\d+:")
_PASS = re.compile(r".*/candidate\.py:(\d+):\d+: (error: .*|note: Pipeline failed .*)")
"""Of the passes behind Triton's front end: they know the file's own lines."""
_FRAME = re.compile(r'\s*File ".*\bcandidate\.py", line (\d+), in (.*)')
_NO_PYTHON = re.compile(r"the source is no Python: line (\d+): (.*)")


@dataclass(frozen=True)
class Complaint:
    """One error, in a text that is not the candidate's whole file."""

    kind: str
    """"cuda" or "cpp"."""
    line: int
    message: str
    quote: str
    """What the compiler shows of the line; "" where it shows none."""
    details: tuple[str, ...] = ()


def located(source: str, said: str) -> list[str]:
    """Returns a compiler's errors whose lines of `source` are known, the first `MOST`, each with the line's text.

    Args:
        source: The candidate's file.
        said: The reasons of its trial, and the log.
    """
    file, lines = source.split("\n"), said.split("\n")
    calls = [line for line, _ in _frames(file, lines)]
    complaints = list(_complaints(lines))
    complaints = [complaint for complaint in complaints if complaint.kind == complaints[0].kind]
    found = list(_compiled(source, complaints, calls)) or list(_of_triton(source, file, lines))
    found += [(int(match[1]), match[2]) for match in map(_PASS.fullmatch, lines) if match]
    found += [(int(number), f"error: {text}") for number, text in _NO_PYTHON.findall(said)]
    return _entries(file, found)


def raised(source: str, said: str) -> list[str]:
    """Returns where in `source` an exception came from, the cause first: one line of each traceback in `said`."""
    file = source.split("\n")
    return _entries(file, _frames(file, said.split("\n")))


def _entries(file: list[str], found: list[tuple[int, str]]) -> list[str]:
    entries = [_entry(file, line, text) for line, text in dict.fromkeys(found) if 0 < line <= len(file)]
    more = [f"and {len(entries) - MOST} further errors"] if len(entries) > MOST else []
    return [*entries[:MOST], *more]


def _entry(file: list[str], line: int, text: str) -> str:
    return f"line {line}: {text}\n{line} | {file[line - 1].strip()}"


def _complaints(lines: list[str]) -> Iterator[Complaint]:
    """Yields what a compiler said of the text it was given."""
    for index, line in enumerate(lines):
        kind = {"cu": "cuda", "cpp": "cpp"}
        if match := _ASSEMBLED.fullmatch(line):
            why = re.findall(rf"ptx input, line {match[1]}; error\s*: (.*)", "\n".join(lines[:index]))
            yield Complaint("cuda", int(match[4]), f"error: {'; '.join(dict.fromkeys(why))}: `{match[2]}`", match[5])
        match = _COMPILED.fullmatch(line)
        if match and re.match(r"(catastrophic |fatal )?error\b", match[4]):
            quote, details = _below(lines[index + 1 :])
            yield Complaint(kind[match[1]], int(match[2] or match[3]), match[4], quote, details)


def _below(lines: list[str]) -> tuple[str, tuple[str, ...]]:
    """Returns the line that the compiler shows below an error, and what else NVRTC says there."""
    block = list(itertools.takewhile(lambda line: line[:1].isspace() and line.strip(), lines))
    for index, line in enumerate(block):
        if quoted := _QUOTED.fullmatch(line):
            return quoted[1].strip(), ()
        if index and _CARET.fullmatch(line):
            return block[index - 1].strip(), tuple(text.strip() for text in block[: index - 1] + block[index + 1 :])
    long = [line.strip() for line in block if len(line) >= _CUT]  # so long that its caret was cut off
    return (long[-1] if long else ""), tuple(line.strip() for line in block if len(line) < _CUT)


def _compiled(source: str, complaints: list[Complaint], frames: list[int]) -> Iterator[tuple[int, str]]:
    literal = _meant(literals(source), complaints, frames) if complaints else None
    if literal is None:
        return
    for complaint in complaints:
        details = [f"  {_renumbered(detail, literal)}" for detail in complaint.details]
        yield literal.lines[complaint.line - 1], "\n".join([complaint.message, *details])


def _renumbered(detail: str, literal: Literal) -> str:
    """Returns what NVRTC says below an error, such as where a template was instantiated, by the candidate's lines."""

    def of_candidate(match: re.Match[str]) -> str:
        number = int(match[1])
        line = literal.lines[number - 1] if 0 < number <= len(literal.lines) else 0
        return f"at line {line}" if line else match[0]

    return re.sub(r"\bat line (\d+)\b(?! of )", of_candidate, detail)


def _meant(calls: list[Literal], complaints: list[Complaint], frames: list[int]) -> Literal | None:
    """Returns the text that was compiled: that of the call that raised, if the log has the traceback, and in any case
    the only one that can be."""
    calls = [call for call in calls if call.kind == complaints[0].kind]
    raised = [call for call in calls if any(call.first <= frame <= call.last for frame in frames)]
    if frames and not raised:
        return None  # compiled by a call that is not seen as one, such as one under another name
    texts = {call.lines: call for call in raised or calls if not call.lines or _shows(call, complaints)}
    return texts.popitem()[1] if len(texts) == 1 and () not in texts else None


def _shows(literal: Literal, complaints: list[Complaint]) -> bool:
    """Whether the text has everywhere what the compiler shows."""
    for complaint in complaints:
        if not 0 < complaint.line <= len(literal.text):
            return False
        line, quote = (" ".join(text.split()) for text in (literal.text[complaint.line - 1], complaint.quote))
        if line != quote and (len(quote) < _CUT or not line.startswith(quote)):
            return False
    return True


def _of_triton(source: str, file: list[str], lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yields the errors of Triton's compiler, which counts from a function's `def` and shows the text up to there."""
    for index, line in enumerate(lines):
        match = _TRITON.fullmatch(line)
        if match is None:
            continue
        end = next((i for i, below in enumerate(lines) if i > index and re.fullmatch(r"\s*\^\s*", below)), 0)
        if end < index + 2:
            continue
        shown = lines[index + 1 : end]
        places = {start + int(match[1]) - 1 for start in _functions(source)}
        places = {place for place in places if _ends_with(file[:place], shown)}
        if len(places) == 1:
            message = lines[end + 1].strip() if end + 1 < len(lines) else ""
            ends = not message or _TRITON.fullmatch(message) or message.startswith("Traceback (")
            yield places.pop(), "called from here" if ends else f"error: {message}"


def _functions(source: str) -> list[int]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _ends_with(file: list[str], shown: list[str]) -> bool:
    return [line.strip() for line in file[-len(shown) :]] == [line.strip() for line in shown]


def _frames(file: list[str], lines: list[str]) -> list[tuple[int, str]]:
    """Returns the innermost frame of the candidate's in each traceback, the cause first; with what was raised there."""
    found: list[tuple[int, str]] = []
    inner: tuple[int, str] | None = None
    for index, line in enumerate(lines):
        match = _FRAME.fullmatch(line)
        if match and _ends_with(file[: int(match[1])], lines[index + 1 : index + 2]):
            inner = int(match[1]), match[2]
        elif inner and re.match(r"[\w.]+(: |$)", line):  # the exception itself, below its frames
            found.append((inner[0], f"in {inner[1]}" + ("" if found else f": {line}")))
            inner = None
    return found
