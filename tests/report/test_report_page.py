"""The page of a run, as text: what is in it, how large it is, and that nothing hostile gets out of its place."""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import re
from html.parser import HTMLParser
from time import process_time
from typing import Any

import pytest
from page_records import candidate, idea, large, recorded, refined, run, solution
from report_records import failed, passed

from agentgen.records.candidate import Candidate, Language
from agentgen.records.trial import Outcome
from agentgen.report.page import story
from agentgen.report.page.detail import details
from agentgen.report.page.outcome import FAMILIES, family
from agentgen.report.page.page import render
from agentgen.report.page.text import LONGEST_LINE, visible
from agentgen.report.page.tree import candidate_key, lay_out
from agentgen.report.solution import Solution

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}\x1b[31m\u202egnp.exe\u2066"


class Elements(HTMLParser):
    """What a browser would make of a page: its elements and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def page(of: Solution) -> str:
    return render(of, {}, (), {})


def unpacked(text: str) -> dict[str, list[Any]]:
    """Returns the table that the page carries, undone as `unpack.js` does it."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text)
    assert found
    data = json.loads(found[1])
    squeezed = base64.b85decode(data["text"].encode().translate(bytes.maketrans(b",./", b"<>&")))
    kind = {"id": lzma.FILTER_LZMA1, "lc": 4, "lp": 0, "pb": 0, "dict_size": data["bytes"]}
    whole = lzma.decompress(squeezed, lzma.FORMAT_RAW, filters=[kind])
    assert len(whole) == data["bytes"]
    return json.loads(whole)


def hostile() -> Solution:
    known = idea(HOSTILE, reasoning=HOSTILE)
    right, wrong = candidate(HOSTILE, known), candidate(f"{HOSTILE} 2", known)
    trials = [passed(right, 1.5, 1.4, 1.6), failed(wrong, Outcome.WRONG_VALUES, HOSTILE)]
    return solution([known], [right, wrong], trials, models=(HOSTILE,))


def test_hostile_words_make_no_element_and_stay_visible() -> None:
    text = page(hostile())
    elements = Elements(text)
    tags = [tag for tag, _ in elements.found]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text
    assert "{{ 7 * 7 }}" in text  # no template of a template
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
    assert "␛[31m⟨U+202E⟩gnp.exe⟨U+2066⟩" in text


def test_a_source_travels_untouched_for_those_who_copy_it() -> None:
    columns = unpacked(page(hostile()))
    sources = dict(zip(columns["key"], columns["source"], strict=True))
    assert HOSTILE in sources.values()


def test_nothing_is_loaded_and_only_our_script_runs() -> None:
    text = page(refined()[0])
    elements = Elements(text)
    policy = next(a["content"] for _, a in elements.found if a.get("http-equiv") == "Content-Security-Policy")
    script = text.rpartition("<script>")[2].partition("</script>")[0]
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for one in (script, style):
        assert base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() in policy
    links = [value for _, a in elements.found for name in ("src", "href", "xlink:href") if (value := a.get(name))]
    assert links
    assert all(value.startswith("#") for value in links)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\tcode é 漢", "plain\n\tcode é 漢"),
        ("\x1b[2J\x07", "␛[2J␇"),
        ("a\u202eb\u200bc\ufeff", "a⟨U+202E⟩b⟨U+200B⟩c⟨U+FEFF⟩"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("\ud800", "⟨U+D800⟩"),
        ("x" * 1_000_000, "x" * LONGEST_LINE + " … 14,000 more characters\n… 980,000 more characters"),
    ],
)
def test_what_cannot_be_seen_is_spelt_out_and_what_has_no_end_is_cut(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_line_of_a_megabyte_makes_no_page_of_a_megabyte() -> None:
    long = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(16_000))  # does not compress well
    one = candidate(long, idea(long[:200], reasoning=long))
    assert (
        len(page(solution([idea(long[:200], reasoning=long)], [one], [failed(one, Outcome.CRASHED, long)]))) < 400_000
    )


def test_a_hundred_candidates_fit_400_kB_and_three_hundred_take_no_two_seconds() -> None:
    assert len(page(large(100)).encode()) < 400_000
    real = recorded(100)
    assert sum("__global__" in one.source for one in real.candidates) == 50
    assert sum(len(one.source) for one in real.candidates) > 1_200_000
    assert len(page(real).encode()) < 400_000
    of = large(300)
    started = process_time()
    page(of)
    assert process_time() - started < 2


def test_ideas_hang_on_kernels_kernels_on_ideas_and_repairs_on_what_they_repair() -> None:
    of, (first, wrong, crashed, repaired) = refined()
    picture = lay_out(of)
    spots = {spot.key: spot for spot in picture.spots}
    assert len(spots) == 1 + 3 + 4
    best = spots[candidate_key(repaired.id)]
    way = [best]
    while way[-1].parent:
        way.append(spots[way[-1].parent])
    assert [spot.label for spot in way] == [
        "2.00× cpp",
        "crashed cpp",
        "Keep tiles in registers",
        "1.25× cpp",
        "Read wide vectors",
        "reference",
    ]
    assert all(spot.on_path for spot in way)
    assert not spots[candidate_key(wrong.id)].on_path
    assert [spot.is_best for spot in way] == [True, False, False, False, False, False]
    assert (spots[candidate_key(first.id)].family, spots[candidate_key(crashed.id)].family) == ("faster", "broke")


def test_no_two_nodes_lie_on_each_other_and_children_stand_on_the_right() -> None:
    picture = lay_out(large(120))
    places = {(spot.x, spot.y) for spot in picture.spots}
    assert len(places) == len(picture.spots) == 241
    assert all(parent.x < child.x for parent, child in picture.edges)
    assert all(0 < spot.x < picture.width and 0 < spot.y < picture.height for spot in picture.spots)
    columns: dict[float, list[float]] = {}
    for spot in picture.spots:
        columns.setdefault(spot.x, []).append(spot.y)
    assert min(b - a for ys in columns.values() for a, b in zip(sorted(ys), sorted(ys)[1:], strict=False)) >= 13


def test_a_store_that_was_tampered_with_still_makes_a_tree() -> None:
    known = idea("Nothing")
    one = candidate("a", known, repair=1)
    one = one.model_copy(update={"parent": one.id})  # its own parent: not part of its id
    lost = candidate("b", idea("not stored"))
    picture = lay_out(solution([known], [one, lost], []))
    assert {spot.key for spot in picture.spots} >= {candidate_key(one.id), candidate_key(lost.id)}
    assert page(solution([known], [one, lost], []))


def test_kernels_whose_ids_begin_alike_are_two() -> None:
    """Eight digits can be made to agree in a second, and a page would show the source of one for the other's trial."""
    first, second = (Candidate(source=f"x = {n}", language=Language.CPP) for n in (66877, 68316))
    assert first.id[:8] == second.id[:8]
    of = solution([], [first, second], [passed(first, 2.0, 1.9, 2.1), failed(second, Outcome.CRASHED, "signal 11")])
    assert len(lay_out(of).spots) == 3
    columns = unpacked(page(of))
    found = dict(zip(columns["source"], columns["outcome"], strict=True))
    assert (found["x = 66877"], found["x = 68316"]) == ("PASSED", "CRASHED")


def test_a_program_refined_a_thousand_times_is_laid_out() -> None:
    of = idea("Refine")
    line = [candidate("0", of)]
    for n in range(1, 1500):
        line.append(candidate(str(n), of, line[-1], repair=n))
    assert len(lay_out(solution([of], line, [])).spots) == 1502


def test_the_story_tells_the_gain_of_each_step_and_what_failed_on_the_way() -> None:
    steps = story.chain(refined()[0])
    assert [(step.outcome, step.speedup, step.gain) for step in steps] == [
        ("PASSED", "1.25× [1.20, 1.30]", ""),
        ("CRASHED", "–", ""),
        ("PASSED", "2.00× [1.90, 2.10]", "1.60×"),
    ]
    assert (steps[0].predicted, steps[1].reason, steps[2].repair) == ("1.50×", "signal 11 in window 3", 1)


def test_what_an_idea_needs_stands_below_its_reasoning() -> None:
    of = idea("Wide", prerequisites=("a row fits", "it is timed"))
    shown = solution([of], [one := candidate("x", of)], [passed(one, 1.5, 1.4, 1.6)])
    told = "because\n\nPrerequisites:\n- a row fits\n- it is timed"
    assert [words["reasoning"] for words in details(shown, {}).values() if words["kind"] == "idea"] == [told]
    assert [step.reasoning for step in story.chain(shown)] == [told]


def test_a_program_without_an_idea_is_told_by_what_it_says_that_it_changed() -> None:
    first = Candidate(source="# Change: wider loads\nimport torch\n", language=Language.CPP)
    second = Candidate(source="import torch\n", language=Language.CPP, parent=first.id)
    shown = solution([], [first, second], [passed(first, 1.5, 1.4, 1.6), passed(second, 2.0, 1.9, 2.1)])
    assert [step.title for step in story.chain(shown)] == ["wider loads", "A program without an idea in words"]


def test_a_run_of_which_nothing_is_known_yet_has_a_page() -> None:
    text = page(solution([], [], [], target=None, models=()))
    assert "no candidate was evaluated" in text
    assert "How the best kernel came about" not in text


def test_reasons_that_differ_in_numbers_count_as_one_trouble() -> None:
    found = story.troubles(large(20))
    assert [(one.outcome, len(one.keys)) for one in found] == [("BUILD_FAILED", 4)]
    assert found[0].reason == "kernel.cu(4): error: identifier undefined"


def test_every_outcome_has_a_family_and_no_two_families_look_alike() -> None:
    one = candidate("x", idea("Any"))
    for outcome in Outcome:
        if outcome is not Outcome.PASSED:
            assert family(failed(one, outcome, "why")) in FAMILIES
    assert family(passed(one, 1.0, 0.9, 1.1)).name == "accepted"
    assert len({one.shape for one in FAMILIES}) == 5  # accepted, faster and open are rings, told apart by their fill


def test_a_page_is_the_same_each_time() -> None:
    assert page(refined()[0]) == page(refined()[0])
    assert f"run {run().id} · 2026-11-22 00:00 UTC · " in page(refined()[0])
