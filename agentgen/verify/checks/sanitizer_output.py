"""What compute-sanitizer prints (memcheck and racecheck, toolkits 11 to 13): its summary and its first fault.

Not covered: leaks and failed calls of CUDA's API; host backtraces, which are not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One error that the tool printed."""

    kind: str
    """`Invalid __global__ write of size 4 bytes`, `Race between Write access and Read access`."""
    kernel: str
    source: str
    """`file:line`, of a race both; empty where the kernel was compiled without line information."""
    detail: str

    def __str__(self) -> str:
        place = f" in {self.kernel}" if self.kernel else ""
        place += f" ({self.source})" if self.source else ""
        return f"{self.kind}{place}{', ' if self.detail else ''}{self.detail}"


@dataclass(frozen=True)
class Summary:
    """What the tool's text says."""

    errors: int | None
    """None: it never came to its summary."""
    warnings: int
    first: Fault | None


def read_summary(text: str) -> Summary:
    """Reads the text of memcheck or racecheck (2021 to 2025): its last line's numbers and the first fault."""
    faults = [fault for fault in map(_fault, _entries(text)) if fault]
    if race := re.search(r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)", text):
        return Summary(int(race[1]), int(race[2]), faults[0] if faults else None)
    total = re.search(r"ERROR SUMMARY: (\d+) errors?\s*$", text, re.MULTILINE)
    return Summary(int(total[1]) if total else None, 0, faults[0] if faults else None)


def _entries(text: str) -> list[list[str]]:
    """Splits the text into messages: a line that begins right behind the prefix, and the indented ones below it."""
    entries: list[list[str]] = []
    for line in text.splitlines():
        match = re.match(r"={8,9}( *)(.*)", line)
        if not match or not match[2].strip():
            continue
        if len(match[1]) <= 1:
            entries.append([match[2].strip()])
        elif entries:
            entries[-1].append(match[2].strip())
    return entries


_FAULT = re.compile(
    r"(Invalid|Misaligned|Uninitialized|Out-of-range|Illegal|Stack overflow|Malloc/Free|Double free|Warp|Barrier) ?.*|"
    r"(?i:error): Race reported between .*"
)
_PLACE = re.compile(
    r"\bat (?P<kernel>(?!0x).+?)(?:\+0x[0-9a-f]+)?(?: in (?P<source>\S+:\d+))?(?: \[.*)?$"
    r"|\bat 0x[0-9a-f]+ in (?P<old_source>\S+?:\d+):(?P<old_kernel>.+?)(?: \[.*)?$"
    r"|\bat 0x[0-9a-f]+ in (?P<bare_kernel>\S+)"
)


def _fault(entry: Sequence[str]) -> Fault | None:
    head, *rest = entry
    if not _FAULT.fullmatch(head):
        return None
    if "Race reported" in head:
        return _race([head, *rest])
    detail = [line for line in rest if line.startswith(("Address", "Access", "and is", "by thread"))]
    places = [place for line in rest if line not in detail and (place := _place(line))]
    kernel, source = places[0] if places else ("", "")
    return Fault(head, kernel, source, " ".join(detail))


def _race(lines: Sequence[str]) -> Fault:
    """The access that is named first, and those on the lines below it, of which the first is told."""
    text = " ".join(lines)
    places = [place for line in lines if (place := _place(line))][:2]
    kind = "Race between " + " and ".join(f"{one} access" for one in re.findall(r"(\w+) access", text)[:2])
    hazards = re.search(r"\[(\d+ hazards?)\]", text)
    sources = dict.fromkeys(source for _, source in places if source)
    return Fault(kind, places[0][0] if places else "", " and ".join(sources), hazards[1] if hazards else "")


def _place(line: str) -> tuple[str, str] | None:
    match = _PLACE.search(line)
    if not match:
        return None
    kernel = match["kernel"] or match["old_kernel"] or match["bare_kernel"]
    return kernel.strip(), match["source"] or match["old_source"] or ""
