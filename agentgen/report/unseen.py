"""Characters that one does not see, or that change what is seen of others: the one list that terminals and pages go by.

Unicode's controls (escape sequences begin with one), formats (bidi controls among them: "Trojan Source", Boucher and
Anderson 2021), surrogates, private ones, separators of lines and paragraphs; and letters and marks without a shape,
which hide in names. A tabulator and a line feed are seen by what they do. Not here: the variation selectors from U+FE00
on, which emoji and many an ideograph carry.
"""

from __future__ import annotations

import re
from typing import Final

_RANGES: Final = (
    *((0x0, 0x8), (0xB, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x600, 0x605), (0x61C, 0x61C)),
    *((0x6DD, 0x6DD), (0x70F, 0x70F), (0x890, 0x891), (0x8E2, 0x8E2), (0x115F, 0x1160), (0x17B4, 0x17B5)),
    *((0x180B, 0x180F), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xD800, 0xF8FF)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD)),
    *((0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
    *((0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)),
)
UNSEEN: Final = re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _RANGES) + "]")
JAVASCRIPT: Final = "/[" + "".join(f"\\u{{{first:x}}}-\\u{{{last:x}}}" for first, last in _RANGES) + "]/u"
"""The same, as JavaScript writes it."""
