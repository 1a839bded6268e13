"""Words of others, shown so that they can do nothing: to a terminal, to the order of letters, or to Markdown.

For people: JSON escapes what it has to by itself.
"""

from __future__ import annotations

import re
from typing import Final

from agentgen.report.unseen import UNSEEN

LONGEST: Final = 500
"""Characters of one text that are shown at most."""
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>|~&$#])")
_LINK: Final = re.compile(r"(?i)(://|www\.|@)")


def plain(text: str, longest: int = LONGEST) -> str:
    """Returns a text in one line, cut where it is long, with what could do harm written out as `\\x1b` or `\\u202e`."""
    beginning = text[: 4 * longest]  # nobody needs a megabyte made harmless of which a line is shown
    line = " ".join(harmless(beginning).split())
    return line if len(line) <= longest and len(text) <= 4 * longest else line[: longest - 1] + "…"


def harmless(text: str) -> str:
    """Returns a text, its lines as they are, with what could do harm written out."""
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def markdown(text: str, longest: int = LONGEST) -> str:
    """Returns a text for a cell of a table in GitHub's Markdown: no markup, no links, no names that are called."""
    escaped = _MARKDOWN.sub(r"\\\1", plain(text, longest))
    return _LINK.sub(lambda found: f"{found[0][0]}<!-- -->{found[0][1:]}", escaped)
