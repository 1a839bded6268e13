"""The page of a real search, as its reader has it: in a browser, on a screen and on a telephone.

`real_run.json` holds the records of one, judged on a CPU: `agentgen solve square --rounds 2` on the small problem of
`tests/e2e`, with a model that was scripted. Two ideas on the reference, of which one forgets the weight, and one on the
better kernel that does not build at first. The texts of the requests were long, and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentgen.cli import main
from agentgen.records.candidate import Candidate
from agentgen.records.chat import ChatReply, ChatRequest
from agentgen.records.idea import Idea
from agentgen.records.run import Run
from agentgen.records.trial import Trial
from agentgen.store.ledger import open_ledger

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Visit = Callable[..., Page]

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PLAIN = "One <b>pass</b> over \u202ex"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, made by the command from a store that holds the run again."""
    folder = tmp_path_factory.mktemp("run")
    stored: dict[str, Any] = json.loads((Path(__file__).parent / "real_run.json").read_text(encoding="utf-8"))
    run = Run.model_validate(stored["run"])
    store = f"sqlite:///{folder}/runs.db"
    with open_ledger(store) as ledger:
        ledger.create_run(run)
        ledger.set_status(run.id, run.status)
        if run.target:
            ledger.set_target(run.id, run.target)
        for one in stored["exchanges"]:
            reply = ChatReply.model_validate(one["reply"])
            ledger.add_reply(run.id, ChatRequest.model_validate(one["request"]), reply)
        for one in stored["ideas"]:
            ledger.add_idea(run.id, one["round"], Idea.model_validate(one["idea"]))
        for one in stored["candidates"]:
            ledger.add_candidate(run.id, one["round"], Candidate.model_validate(one["candidate"]))
        for one in stored["trials"]:
            ledger.add_trial(run.id, Trial.model_validate(one))
    file = folder / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGEN_STORE", store)
        assert main.run(["report", run.id, "--html", str(file)]) == 0
    assert file.stat().st_size < 100_000
    return file


def _overflow(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_every_section_fits_and_every_kernel_can_be_looked_at(
    visit: Visit, page_file: Path, width: int, scheme: str
) -> None:
    page = visit(page_file, width=width, color_scheme=scheme)
    headings = page.locator("h2").all_inner_texts()
    assert headings == [
        "Refinement tree",
        "Kernel",
        "How the best kernel came about",
        "Measured",
        "All kernels",
        "What models ran into",
        "Costs",
    ]
    assert page.locator("#canvas .n.idea").count() == 3
    assert PLAIN not in page.content()
    assert "One <b>pass</b> over ⟨U+202E⟩x" in page.locator("#rows").inner_text()
    for node in page.locator("#canvas .n").all():
        node.click()
        assert node.get_attribute("aria-selected") == "true"
        for tab in ("about", "diff", "source", "checks", "log"):
            page.locator(f"#t-{tab}").click()
            assert page.locator("#pane").inner_text()
            assert _overflow(page) <= 0
        page.locator("#t-about").click()


def test_a_diff_shows_the_line_that_a_repair_changed(visit: Visit, page_file: Path) -> None:
    for width, columns in ((1440, 4), (390, 2)):
        page = visit(page_file, width=width)
        page.locator("#rows tbody tr", has_text="repair 1").locator("a").click()
        page.locator("#t-diff").click()
        assert page.locator(".diff col").count() == columns
        removed, added = page.locator(".diff td.del"), page.locator(".diff td.add")
        assert "extern? " in removed.first.inner_text()
        assert [removed.count(), added.count()] == [2, 2]
        assert page.locator(".diff td.del mark").first.inner_text() == "?"
        page.locator("#vs").select_option(value="root")
        assert "&vs=root" in page.url


def test_filters_and_the_selected_node_are_in_the_url(visit: Visit, page_file: Path) -> None:
    page = visit(page_file, "#out=wrong&tab=checks")
    assert page.locator("#rows tbody tr:visible").count() == 1
    assert page.locator("#matches").inner_text() == "1 of 4 kernels"
    assert page.locator("#canvas .n.candidate:not(.out)").count() == 1
    assert page.locator("#canvas .n.idea:not(.out)").count() == 1
    assert page.locator('.chip[data-out="wrong"]').get_attribute("aria-pressed") == "true"
    page.locator('.chip[data-out="wrong"]').click()
    page.locator("#q").fill("two ROWS")
    page.wait_for_function("location.hash.endsWith('&tab=checks&q=two+ROWS')")  # not at each key
    assert page.locator("#rows tbody tr:visible").count() == 2
    page.locator("#canvas .n.wrong").click()
    again = visit(page_file, page.url.partition(".html")[2])
    assert again.locator("#head").inner_text() == page.locator("#head").inner_text()
    assert "WRONG_VALUES" in again.locator("#head").inner_text()
    assert again.locator("#q").input_value() == "two ROWS"
    assert "FAILED" in again.locator(".checks tbody tr").first.inner_text()


def test_the_theme_follows_the_system_until_it_is_chosen(visit: Visit, page_file: Path) -> None:
    page = visit(page_file, color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    light = page.evaluate(background)
    page.locator("#theme").click()
    assert dark == page.evaluate(background) == "rgb(16, 19, 26)"
    assert light == visit(page_file, color_scheme="light").evaluate(background) == "rgb(251, 251, 253)"


def test_everything_can_be_done_from_the_keyboard(visit: Visit, page_file: Path) -> None:
    page = visit(page_file)
    page.locator('#canvas .n[tabindex="0"]').focus()
    selected = "#canvas .n.sel"
    best = page.locator(selected).get_attribute("data-n")
    assert "best" in (page.locator(selected).get_attribute("class") or "")
    way: list[str] = []
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
        way.append((page.locator(selected).get_attribute("class") or "").split()[1])
    assert way[-1] == "root"
    assert {"idea", "candidate"} & set(way)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "idea" in (page.locator(selected).get_attribute("class") or "")
    page.keyboard.press("3")
    assert page.locator("#t-source").get_attribute("aria-selected") == "true"
    page.keyboard.press("b")
    assert page.locator(selected).get_attribute("data-n") == best
    assert page.locator("pre.code .c-word").count() > 5
    page.keyboard.press("/")
    page.keyboard.type("weights")
    assert page.locator("#rows tbody tr:visible").count() == 1


def test_the_pointer_brings_up_a_card(visit: Visit, page_file: Path) -> None:
    page = visit(page_file)
    card = page.locator("#card")
    assert card.is_hidden()
    page.locator("#canvas .n.wrong").hover()
    assert "WRONG_VALUES" in card.inner_text()
    page.locator("h1").hover()
    assert card.is_hidden()


def test_without_scripts_tree_story_and_charts_are_there(page_file: Path, visit: Visit) -> None:
    browser = visit(page_file).context.browser
    assert browser
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(page_file.as_uri())
    for selector in ("#canvas svg", "#story .reached b", "#charts figure", "#errors", "#costs"):
        assert page.locator(selector).first.is_visible()
    assert "JavaScript" in page.locator("#pane").inner_text()
