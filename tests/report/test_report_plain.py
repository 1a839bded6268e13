"""Words of others can do nothing to a terminal, to the order of letters, or to Markdown."""

from __future__ import annotations

import unicodedata

import pytest

from agentgen.report.plain import harmless, markdown, plain

ATTACKS = {
    "\x1b[31mred\x1b[0m": "\\x1b[31mred\\x1b[0m",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "\x9b5m": "\\x9b5m",
    "a\rb": "a\\rb",
    "a\u202eb": "a\\u202eb",
    "a\u2066b": "a\\u2066b",
    "\u200bhidden": "\\u200bhidden",
    "a\U000e0041b": "a\\U000e0041b",
    "a\u2028b": "a\\u2028b",
    "\udc80": "\\udc80",
    "[bold]µ × ≤ 日本[/bold]": "[bold]µ × ≤ 日本[/bold]",
}


@pytest.mark.parametrize("text", ATTACKS)
def test_what_could_do_harm_is_written_out(text: str) -> None:
    assert harmless(text) == ATTACKS[text]
    assert plain(text) == ATTACKS[text]


def test_no_control_or_format_character_of_unicode_is_left() -> None:
    whole = harmless("".join(map(chr, range(0x110000))))
    kinds = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    assert not {letter for letter in whole if unicodedata.category(letter) in kinds} - {"\t", "\n"}
    turning = {letter for letter in whole if unicodedata.bidirectional(letter) in {"RLO", "LRO", "RLE", "LRE", "PDF"}}
    turning |= {letter for letter in whole if unicodedata.bidirectional(letter) in {"RLI", "LRI", "FSI", "PDI"}}
    assert not turning


def test_nothing_that_has_a_shape_is_written_out() -> None:
    seen = "\n\t µ×≤–…␛ é̂ 漢字 한글 ﺍﻟﻌﺮﺑﻴﺔ עברית ไทย हिन्दी 🙂 ⚠\ufe0f 葛\ufe00"
    assert harmless(seen) == seen
    assert harmless("a\u3164\u115f\u034fb") == r"a\u3164\u115f\u034fb"  # letters and a mark without a shape


def test_a_text_is_one_line_of_bearable_length() -> None:
    assert plain("two\nlines\tof  words") == "two lines of words"
    assert plain("x" * 500) == "x" * 500
    for text in ("x" * 501, "x" * 10_000_000, "\x1b" * 10_000_000, " " * 10_000_000 + "x"):
        assert len(plain(text)) <= 500
        assert plain(text).endswith("…")


def test_lines_stay_where_they_may() -> None:
    assert harmless("two\n\tlines") == "two\n\tlines"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("a | b", r"a \| b"),
        ("<script>alert(1)</script>", r"\<script\>alert(1)\</script\>"),
        ("![x](http://e.org)", r"!\[x\](http:<!-- -->//e.org)"),
        ("`code` **bold** _it_ ~no~", r"\`code\` \*\*bold\*\* \_it\_ \~no\~"),
        ("ask @somebody, www.e.org, #9, &lt;", r"ask @<!-- -->somebody, w<!-- -->ww.e.org, \#9, \&lt;"),
        ("$x$ \\ \n| --- |", r"\$x\$ \\ \| --- \|"),
    ],
)
def test_a_cell_of_markdown_holds_no_markup(text: str, cell: str) -> None:
    assert markdown(text) == cell
