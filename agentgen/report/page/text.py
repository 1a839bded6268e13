"""Hostile text, made harmless to look at: sources, ideas, reasons and logs come from models and candidates.

Escaping for HTML is Jinja2's part. This is about what HTML does not escape: characters that one cannot see
(`report.unseen`), and texts without end. `code.js` does the same for sources, which travel untouched so that they can
be copied.
"""

from __future__ import annotations

import re

from agentgen.report.unseen import UNSEEN

LONGEST_LINE = 6_000
"""Characters; what is left out is counted. A paragraph of reasoning has up to half of that."""
LONGEST_TEXT = 20_000


def visible(text: str) -> str:
    """Returns a text with each control character spelt out, and without lines that are too long."""
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}\n… {len(text) - LONGEST_TEXT:,} more characters"
    return "\n".join(_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def clip(text: str, length: int) -> str:
    """Returns a text in one line of at most so many characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _line(line: str) -> str:
    left_out = len(line) - LONGEST_LINE
    if left_out > 0:
        line = line[:LONGEST_LINE]
    line = UNSEEN.sub(_spelt_out, line)
    return f"{line} … {left_out:,} more characters" if left_out > 0 else line


def _spelt_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"  # ␛ and its kin
