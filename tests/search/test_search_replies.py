from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_factories import fenced, ideas_json, source_text

from agentgen.records.chat import ChatReply, Fault
from agentgen.records.idea import Category, Idea
from agentgen.search.replies import Unusable, parse_ideas, parse_source


def reply(text: str, fault: Fault | None = None) -> ChatReply:
    return ChatReply(text=text, model="m", fault=fault)


def ideas(text: str, count: int = 4) -> tuple[Idea, ...] | Unusable:
    return parse_ideas(reply(text), "root", count)


def test_ideas_are_read_as_they_stand() -> None:
    text = json.dumps(
        {
            "ideas": [
                {"category": "Memory  Access", "title": " Pack\nthe weights ", "reasoning": "r", "predicted_speedup": 2}
            ]
        }
    )
    assert ideas(text) == (
        Idea(
            parent="root",
            category=Category.MEMORY_ACCESS,
            title="Pack the weights",
            reasoning="r",
            predicted_speedup=2.0,
        ),
    )


@pytest.mark.parametrize(
    "around", ["{}", "```json\n{}\n```", "I weighed {{a, b}} first.\n\n{}\n\nThat is all {{}}.", '{{"plan": {}}}']
)
def test_ideas_are_found_wherever_the_object_stands(around: str) -> None:
    found = ideas(around.format(ideas_json("One way", "Another way")))
    assert isinstance(found, tuple)
    assert [idea.title for idea in found] == ["One way", "Another way"]


def test_more_ideas_than_asked_and_repeated_titles_are_dropped() -> None:
    found = ideas(ideas_json("Tile K by 64", "tile k, by 64!", "Prefetch", "Unroll", "Pack"), count=3)
    assert isinstance(found, tuple)
    assert [idea.title for idea in found] == ["Tile K by 64", "Prefetch", "Unroll"]


def test_one_broken_idea_does_not_cost_the_others() -> None:
    items = json.loads(ideas_json("Fine one"))["ideas"]
    broken = [7, {"category": "magic", "title": "No such kind", "reasoning": "r"}, {"category": "memory access"}]
    found = ideas(json.dumps({"ideas": broken + items}))
    assert isinstance(found, tuple)
    assert [idea.title for idea in found] == ["Fine one"]


def test_null_is_missing() -> None:
    text = ideas_json("Fine one").replace('"Fine one"', "null")
    found = ideas(text)
    assert isinstance(found, Unusable)
    assert "title" in found.reason
    reasoned = ideas(ideas_json("Fine one").replace('"Fine one, for it waits."', "null"))
    assert isinstance(reasoned, Unusable)
    assert "reasoning" in reasoned.reason


def titles(text: str, count: int = 4) -> list[str]:
    found = ideas(text, count)
    assert isinstance(found, tuple), found
    return [idea.title for idea in found]


FORM = '{"ideas": [{"category": "...", "title": "...", "reasoning": "...", "predicted_speedup": 1.5}]}'


@pytest.mark.parametrize(
    "before",
    [
        f"<think>The form is {FORM}. A draft: {ideas_json('Draft')} Better:</think>\n",
        f"A draft:\n{ideas_json('Draft')}\n</think>\n\n",
        f"The form is {FORM}\n",
        f"A draft: {ideas_json('Draft')}\n\nBetter:\n",
    ],
)
def test_the_ideas_after_the_thinking_count(before: str) -> None:
    assert titles(before + ideas_json("One way", "Another way")) == ["One way", "Another way"]
    assert titles(before + ideas_json("One way") + f"\n(as asked: {FORM})") == ["One way"]


def test_where_nothing_follows_the_thinking_all_counts() -> None:
    assert titles(f"<think>{ideas_json('One way')}</think>\n") == ["One way"]
    assert parse_source(reply(f"<think>\n{fenced(source_text('1.0'))}</think>\n \n")) == source_text("1.0")


def test_the_reason_is_that_of_the_last_one() -> None:
    found = ideas(f'I was given {FORM}.\n{{"ideas": [,]}}')
    assert isinstance(found, Unusable)
    assert "could not be read" in found.reason


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("two\nlines\tof it", "two\nlines\tof it"),
        (r"\(n\) rows, 5\% of \\ and \u00e9 and \unit", "\\(n\\) rows, 5\\% of \\ and é and \\unit"),
        (r"a \"quoted\" word, \\(x\\)", 'a "quoted" word, \\(x\\)'),
    ],
)
def test_line_breaks_and_stray_backslashes_are_read(written: str, read: str) -> None:
    found = ideas(ideas_json("Fine one").replace("Fine one, for it waits.", written))
    assert isinstance(found, tuple), found
    assert found[0].reasoning == read


def test_a_bare_list_of_ideas_is_read() -> None:
    bare = json.dumps(json.loads(ideas_json("One way", "Another way"))["ideas"])
    assert titles(bare) == ["One way", "Another way"]
    assert titles(f"x[0] = [{{}}]\n```json\n{bare}\n```") == ["One way", "Another way"]
    assert titles(f'{{"ideas": {bare}, "note": "cut o') == ["One way", "Another way"]
    assert isinstance(ideas('[{"title": "One way", "reasoning": "r"}]'), Unusable)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ('["a row fits\\n in shared memory", " "]', ("a row fits in shared memory",)),
        ('"a row fits"', ("a row fits",)),
        ("null", ()),
        ('[1, {"a": 2}, null, "it is timed"]', ("it is timed",)),
        (json.dumps(["x" * 300] * 20), ("x" * 200,) * 8),
    ],
)
def test_what_an_idea_needs_is_read_and_bounded(given: str, kept: tuple[str, ...]) -> None:
    with_needs = ideas_json("Fine one").replace('"predicted', f'"prerequisites": {given}, "predicted')
    found, plain = ideas(with_needs), ideas(ideas_json("Fine one"))
    assert isinstance(found, tuple)
    assert isinstance(plain, tuple)
    assert (found[0].prerequisites, plain[0].prerequisites) == (kept, ())
    assert found[0].id == plain[0].id


@pytest.mark.parametrize("forecast", ['"a lot"', "-1", "0", "1e999", "null"])
def test_a_strange_forecast_is_left_out(forecast: str) -> None:
    found = ideas(ideas_json("Fine one").replace("1.5", forecast))
    assert isinstance(found, tuple)
    assert found[0].predicted_speedup is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no JSON object"),
        ("I have no ideas.", "no JSON object"),
        ('{"ideas": {"title": "x"}}', "no JSON object"),
        ('{"ideas": []}', "is empty"),
        ('{"ideas": [1]}', "must be a JSON object"),
        ('{"ideas": [{"category": "memory access", "title": "abc", "reasoning": "r"},]}', "could not be read"),
        ('{"ideas": [{"category": "magic", "title": "abc", "reasoning": "r"}]}', "'magic'"),
        ('{"ideas": [{"category": "memory access", "title": "ab", "reasoning": "r"}]}', "title"),
        ('{"ideas": [{"category": "memory access", "title": "abc"}]}', "reasoning"),
        ('{"ideas": [{"category": "memory access", "title": "a\\ud800c", "reasoning": "r"}]}', "title"),
    ],
)
def test_why_ideas_cannot_be_used(text: str, reason: str) -> None:
    found = ideas(text)
    assert isinstance(found, Unusable)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault.LENGTH, "cut off at the length limit: be briefer"),
        (Fault.BROKEN, "connection broke off"),
        (Fault.REFUSED, "refusal"),
        (Fault.FILTERED, "content filter"),
        (Fault.EMPTY, "empty"),
    ],
)
def test_a_reply_with_a_fault_is_told_so(fault: Fault, told: str) -> None:
    found = parse_source(reply("```python\nclass ModelNew:\n    def forw", fault))
    assert isinstance(found, Unusable)
    assert "not closed" in found.reason
    assert told in found.reason
    refused = parse_ideas(reply("", fault), "root", 4)
    assert isinstance(refused, Unusable)
    assert told in refused.reason


@pytest.mark.parametrize("fault", Fault)
def test_a_fault_does_not_matter_where_all_is_there(fault: Fault) -> None:
    assert parse_source(reply(fenced(source_text("1.0")), fault)) == source_text("1.0")


@given(st.text())
def test_any_text_gives_ideas_or_a_reason(text: str) -> None:
    found = ideas('{"ideas": [' + text)
    assert isinstance(found, Unusable)
    assert found.reason


@given(st.text(alphabet='{}[]",:ideas \n0`~'))
def test_any_text_gives_a_source_or_a_reason(text: str) -> None:
    found = parse_source(reply(text))
    assert isinstance(found, Unusable)
    assert found.reason


_CODE_LINES = st.lists(
    st.text(alphabet=st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20).filter(
        lambda line: not line.lstrip(" ").startswith(("`", "~", "class"))
    ),
    max_size=8,
)


@given(before=_CODE_LINES, code=_CODE_LINES, after=_CODE_LINES)
def test_the_block_is_returned_as_it_came(before: list[str], code: list[str], after: list[str]) -> None:
    source = "\n".join(["class ModelNew:", *code])
    text = "\n".join([*before, "```python", source, "```", *after])
    assert parse_source(reply(text)) == source.rstrip() + "\n"


def test_of_several_blocks_the_one_that_defines_the_module_is_taken() -> None:
    text = f"```cpp\nint x;\n```\n{fenced(source_text('1.0'))}\n~~~\nclass ModelNewer: ...\n~~~\n"
    assert parse_source(reply(text)) == source_text("1.0")


@pytest.mark.parametrize("begin", ["<think>\n", ""])
def test_the_block_after_the_thinking_counts(begin: str) -> None:
    drafts = fenced(source_text("1")) + fenced(source_text("2")) + "```python\nclass ModelNew: # no, "
    text = f"{begin}{drafts}</think>\n\n{fenced(source_text('3'))}"
    assert parse_source(reply(text)) == source_text("3")


def test_fences_within_a_longer_fence_are_text() -> None:
    source = 'class ModelNew:\n    """\n```\nexample\n```\n    """\n'
    assert parse_source(reply(f"````python\n{source}````")) == source


def test_windows_line_ends_are_read() -> None:
    assert parse_source(reply("```python\r\nclass ModelNew: ...\r\n```\r\n")) == "class ModelNew: ...\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class ModelNew: ...", "no fenced block"),
        ("```python\nclass Model: ...\n```", "defines `class ModelNew`"),
        ("```python\n# class ModelNew\nx = 'class ModelNew'\n```", "defines `class ModelNew`"),
        (fenced(source_text("1")) + fenced(source_text("2")), "2 fenced blocks"),
        ("```python\nclass ModelNew: ...\n", "not closed"),
    ],
)
def test_why_a_source_cannot_be_used(text: str, reason: str) -> None:
    found = parse_source(reply(text))
    assert isinstance(found, Unusable)
    assert reason in found.reason
    assert "cut off" not in found.reason
