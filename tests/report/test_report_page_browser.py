"""Pages of runs made by hand, in a browser: hostile ones, large ones, and whether diffs are right."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from page_records import candidate, idea, large, recorded, refined, solution
from report_records import failed, passed

from agentgen.records.trial import Outcome
from agentgen.report.page import packing
from agentgen.report.page.page import render
from agentgen.report.solution import Solution
from agentgen.report.unseen import UNSEEN

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Visit = Callable[..., Page]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = (
    '</script><script>document.title="taken"</script><img src=x onerror=\'document.title="taken"\'>\x1b[2J\u202e\u2066'
)


def written(of: Solution, folder: Path) -> Path:
    file = folder / "page.html"
    file.write_text(render(of, {}, (), {}), encoding="utf-8")
    return file


def test_hostile_sources_ideas_reasons_and_logs_do_nothing(visit: Visit, tmp_path: Path) -> None:
    long = HOSTILE + "x" * 1_000_000 + "\n"
    known = idea(HOSTILE, reasoning=long)
    right, wrong = candidate(f"{HOSTILE}\n{long}", known), candidate(f"# {HOSTILE}", known)
    trials = [
        passed(right, 1.5, 1.4, 1.6),
        failed(wrong, Outcome.WRONG_VALUES, HOSTILE).model_copy(update={"log": long}),
    ]
    page = visit(written(solution([known], [right, wrong], trials, models=(HOSTILE,)), tmp_path))
    for key in ("#n=root", f"#n={right.id[:8]}", f"#n={wrong.id[:8]}", f"#n=i{known.id[:8]}"):
        for tab in ("about", "diff", "source", "checks", "log"):
            page.evaluate("hash => { location.hash = hash }", f"{key}&tab={tab}")
            page.wait_for_function(
                "tab => document.querySelector('[role=tab][aria-selected=true]').dataset.tab === tab", arg=tab
            )
            assert not page.locator("img").count()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("hash => { location.hash = hash }", f"#n={right.id[:8]}&tab=source")
    shown = page.locator("#pane").inner_text()
    assert "␛[2J⟨U+202E⟩⟨U+2066⟩" in shown
    assert "has characters that cannot be seen" in shown
    assert len(shown) < 10_000
    assert page.title().startswith("conv2d")


def test_the_policy_runs_no_script_but_the_pages_own(visit: Visit, tmp_path: Path) -> None:
    file = written(refined()[0], tmp_path)
    page = visit(file)
    # As if escaping had failed. What the browser says of it is the complaint that `visit` would see: it is taken away.
    page.context.close()
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("<main>", "<main><script>document.title='taken'</script>"), encoding="utf-8")
    assert "taken" in file.read_text(encoding="utf-8")
    other = page.context.browser
    assert other
    bare = other.new_page()
    blocked: list[str] = []
    bare.on("console", lambda said: blocked.append(said.text))
    bare.goto(file.as_uri())
    bare.wait_for_selector("html[data-ready]")
    assert "taken" not in bare.title()
    assert any("Content Security Policy" in one for one in blocked)
    assert (
        bare.evaluate(
            "(() => { try { document.body.innerHTML = '<b>'; return 'written' } catch { return 'refused' } })()"
        )
        == "refused"
    )


def test_three_hundred_kernels_open_within_two_seconds_and_stay_usable(visit: Visit, tmp_path: Path) -> None:
    page = visit(written(large(300), tmp_path))
    assert page.evaluate("performance.now()") < 2000
    assert page.locator("#canvas .n.candidate").count() == page.locator("#rows tbody tr").count() == 300
    spent = page.evaluate(
        """() => [{n: kernelsOf[200]}, {tab: "diff"}, {tab: "source"}, {q: "step 7"}, {q: "", out: "build"}].map(
          what => {
            const start = performance.now();
            change(what);
            document.body.getBoundingClientRect(); // lays the page out
            return performance.now() - start;
          }
        )"""
    )
    assert max(spent) < 1000, spent
    assert page.locator("#rows tbody tr:visible").count() == 60


def test_a_diff_gives_both_sides_back_and_is_as_short_as_can_be(visit: Visit, tmp_path: Path) -> None:
    page = visit(written(refined()[0], tmp_path))
    rng = random.Random(7)
    pairs: list[tuple[list[str], list[str]]] = [([], []), (["a"], []), ([], ["a"]), (["a", "b"], ["b", "a"])]
    for _ in range(300):
        pairs.append(
            (
                [rng.choice("abcd") for _ in range(rng.randrange(12))],
                [rng.choice("abcd") for _ in range(rng.randrange(12))],
            )
        )
    found: list[list[list[int | None]]] = page.evaluate("pairs => pairs.map(([a, b]) => compare(a, b))", pairs)
    for (before, after), rows in zip(pairs, found, strict=True):
        assert [row[0] for row in rows if row[0] is not None] == list(range(len(before)))
        assert [row[1] for row in rows if row[1] is not None] == list(range(len(after)))
        alike = [(i, j) for i, j in rows if i is not None and j is not None]
        assert all(before[i] == after[j] for i, j in alike)
        assert len(alike) == _longest(before, after)


def _longest(a: list[str], b: list[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for one in a:
        above = row[:]
        for j, other in enumerate(b, 1):
            row[j] = above[j - 1] + 1 if one == other else max(above[j], row[j - 1])
    return row[-1]


@pytest.mark.parametrize("way", ["lzma", "gzip"])
def test_what_is_packed_comes_out_as_it_was(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "gzip":  # as on a Python that was built without LZMA
        monkeypatch.setattr(packing, "lzma", None)
    page = visit(written(refined()[0], tmp_path))
    rng = random.Random(3)
    texts = ["", "a", "abc" * 100_000, "".join(chr(rng.randrange(0x20, 0xD800)) for _ in range(50_000))]
    texts += ["".join(rng.choice("ab \n") for _ in range(rng.randrange(3000))) for _ in range(40)]
    texts += [one.source for one in recorded(30).candidates]
    for some in ([], texts[:1], texts[:2], texts):
        data = json.loads(packing.packed({str(n): {"text": text} for n, text in enumerate(some)}))
        assert data["way"] == way
        back = page.evaluate("async data => Object.values(await unpack(data)).map(one => one.text)", data)
        assert back == some


def test_the_browser_spells_out_the_same_characters(visit: Visit, tmp_path: Path) -> None:
    page = visit(written(refined()[0], tmp_path))
    found = page.evaluate("[...Array(0x110000).keys()].filter(code => UNSEEN.test(String.fromCodePoint(code)))")
    assert found == [code for code in range(0x110000) if UNSEEN.match(chr(code))]
    page.evaluate("location.hash = '#tab=source'")
    assert "cannot be seen" not in page.locator("#pane").inner_text()
    said = page.evaluate(
        "text => whole(text).map(one => one.innerText ?? one.textContent).join('')", "x = 1\r\ny = 2\r\n"
    )
    assert "cannot be seen" not in said


def test_highlighting_leaves_every_character_where_it_was(visit: Visit, tmp_path: Path) -> None:
    page = visit(written(refined()[0], tmp_path))
    sources = [
        'lib = jit.cuda(r"""\n#include <x>\n__global__ void k(float* y) { y[0] = 1.f; } // "a\n""")\n# end',
        "text = \"not closed\nb = '''also not {\n; ",
        "x = 0x1F + 1_000.5e-3 @ f'{a}'  # é 漢\r\nend",
        '"""a doc; with {braces}\n"""\n' * 3,
    ]
    for source in sources:
        back = page.evaluate(
            "text => lines(text).map(line => line.map(([, part]) => part).join('')).join('\\n')", source
        )
        assert back == source.replace("\r\n", "\n")
    kinds = page.evaluate(
        "text => lines(text).flat().filter(([kind]) => kind).map(([kind, part]) => kind + ' ' + part)", sources[0]
    )
    assert {"special __global__", "word void", "number 1.f", "comment # end", "special #include <x>"} <= set(kinds)
