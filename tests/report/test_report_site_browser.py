"""The site of the leaderboard as its reader has it: on a screen and on a telephone, opened from a disk."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from entry_records import MACHINE
from site_records import CPU, SOURCE, kept, leaderboard, report, rich
from test_report_site import HOSTILE, hostile

from agentgen.report.site import curves, folder
from agentgen.report.site.site import render
from agentgen.report.standings import boards
from agentgen.scoring import batch
from agentgen.store.entries import Kept

if TYPE_CHECKING:
    from playwright.sync_api import Page

    Visit = Callable[..., Page]

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def written(to: Path, entries: list[Kept], evals: Path | None = None) -> Path:
    """Writes a site, and returns its first page."""
    found = curves.read_all(evals) if evals else ((), (), ())
    folder.write(render(boards(entries), *found), to)
    return to / "index.html"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with three machines and two reports."""
    home = tmp_path_factory.mktemp("site")
    evals = home / "evals"
    evals.mkdir()
    with ThreadPoolExecutor(1) as thread:  # in this one, the browser's event loop may run
        gpu = thread.submit(report, [9.3, 1.9, None, 1.2, 0.8, None, 333.0]).result()
        cpu = thread.submit(report, [1.3, None, 0.4], machine=CPU).result()
    batch.save(gpu, evals / "headline-h200.json")
    batch.save(cpu, evals / "headline-cpu.json")
    return written(home / "site", leaderboard(), evals)


def fits(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_every_page_fits_and_links_lead_there_and_back(visit: Visit, index: Path, width: int, scheme: str) -> None:
    page = visit(index, width=width, color_scheme=scheme)
    assert page.locator("h2").all_inner_texts() == ["How close to the roofline", "Boards", "fast_p of evaluations"]
    assert page.locator(".matrix td a b").all_inner_texts() == ["81%", "146%", "64%", "–", "5%"]
    assert page.locator(".curve").count() == 2
    assert "over eager, n = 7" in (page.locator(".curve svg").nth(1).text_content() or "")
    links = page.locator(".board a").count()
    assert links == 6
    for n in range(links):
        page.locator(".board a").nth(n).click()
        page.wait_for_selector("html[data-ready]")
        assert page.locator("#source-kernel .line").count() >= SOURCE.count("\n")
        assert page.locator(".spans").count() == 3
        assert fits(page)
        page.locator("summary", has_text="the reference").click()
        assert "class Model" in page.locator("#source-reference").inner_text()
        page.get_by_text("all certified kernels").click()
        page.wait_for_selector("html[data-ready] .matrix")
        assert fits(page)


def test_the_number_in_a_cell_is_readable_on_every_shade(visit: Visit, tmp_path: Path) -> None:
    shades = kept(
        *(rich(roofline=n / 10, machine=MACHINE.model_copy(update={"device": f"device {n}"})) for n in range(12))
    )
    file = written(tmp_path / "site", shades)
    for scheme in ("light", "dark"):
        ratios = visit(file, color_scheme=scheme).evaluate(
            """() => [...document.querySelectorAll(".matrix td a small")].map(one => {
              const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
              const pen = canvas.getContext("2d", { willReadFrequently: true });
              const light = color => {
                pen.fillStyle = color;
                pen.fillRect(0, 0, 1, 1);
                const linear = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)
                  .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
              };
              const [low, high] = [getComputedStyle(one).color, getComputedStyle(one.closest("td")).backgroundColor]
                .map(light).sort((x, y) => x - y);
              return (high + 0.05) / (low + 0.05);
            })"""
        )
        assert len(ratios) == 12
        assert min(ratios) > 4.5, (scheme, ratios)
        assert len({round(ratio, 2) for ratio in ratios}) >= 11  # and no two shades are alike


def test_a_source_is_copied_and_kept_as_it_was_judged(visit: Visit, index: Path) -> None:
    page = visit(index, permissions=["clipboard-read", "clipboard-write"])
    page.locator(".matrix td a").first.click()
    page.wait_for_selector("html[data-ready] #source-kernel button")
    page.locator("#source-kernel button").first.click()
    page.get_by_text("copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == SOURCE
    name = page.locator("a[download]").get_attribute("href")
    assert name
    assert (index.parent / "kernels" / name).read_bytes() == SOURCE.encode()
    with page.expect_download() as caught:
        page.get_by_text("download", exact=True).click()
    assert caught.value.suggested_filename == name
    assert caught.value.path().read_bytes() == SOURCE.encode()


def test_everything_can_be_reached_from_the_keyboard_and_the_theme_stays(visit: Visit, index: Path) -> None:
    page = visit(index, color_scheme="light")
    reached: list[str] = []
    for _ in range(7):  # the theme, the matrix, its cells
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('href')"))
        if reached[-1] == "theme":
            page.keyboard.press("Enter")
    assert "theme" in reached
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 26)"
    assert reached[-1].startswith("kernels/")
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-ready] #source-kernel .line")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 19, 26)"


@pytest.mark.parametrize("width", [1440, 390])
def test_a_hostile_entry_harms_nothing(visit: Visit, tmp_path: Path, width: int) -> None:
    page = visit(written(tmp_path / "site", kept(hostile(), rich())), width=width)
    for leave in (True, False):
        assert not page.locator("img").count()
        assert fits(page)
        assert "taken" not in page.title()
        assert "⟨U+202E⟩" in page.locator("main").inner_text() or "\\u202e" in page.locator("main").inner_text()
        if leave:
            page.locator(".board a").first.click()
            page.wait_for_selector("html[data-ready] #source-kernel .line")
    shown = page.locator("#source-kernel").inner_text()
    assert "␛[31m⟨U+202E⟩gnp.exe⟨U+2066⟩⟨U+3164⟩" in shown
    assert "has characters that cannot be seen" in shown
    assert HOSTILE not in page.locator("body").inner_text()
    assert len(shown) < 10_000
