"""Which tests run by default, in how many processes, and why the others do not; skips where a compiler is missing; and
a browser, for those that look at pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentgen.sandbox.process import BOTH_SIDES

# What OpenMP's runtime reads when torch loads it: judges in this process time as those in programs of their own do.
os.environ.update({name: value for name, value in BOTH_SIDES.items() if "OMP" in name})

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    "--no-sandbox",  # tests run as root, in containers
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too, as CI does")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """All of the default tests run in two processes, a file in one of them. Not those that were chosen, of which some
    are timed and some have a GPU to themselves; nor where there is no pytest-xdist, or `-n` says how many."""
    if hasattr(config, "workerinput"):
        return  # one of the two, which would start two more, and so on
    given = config.option
    chosen = config.args_source is pytest.Config.ArgsSource.ARGS or given.markexpr or given.keyword
    if chosen or given.slow or given.usepdb or not config.pluginmanager.hasplugin("xdist"):
        return
    if given.numprocesses is None:
        given.numprocesses, given.dist = 2, "loadfile"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: starts judges for seconds each; run with --slow, as CI does")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def gpp() -> None:
    """Skips where C++ cannot be compiled."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on the PATH")


@pytest.fixture(scope="session")
def nvrtc(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where CUDA source cannot be compiled."""
    from agentgen import jit  # and with it torch, which most tests do without

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("probe")))
        try:
            jit.cuda('extern "C" __global__ void probe(int n) {}', arch="sm_90a")
        except RuntimeError as error:
            if "libnvrtc not found" not in str(error):
                raise
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless Chromium, the system's own. For a module: as long as it lives, playwright's event loop runs in this
    thread, and nobody else's can."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install -e '.[dev]'")
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no chromium on the PATH: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(_QUIET))
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a file, and fails where a page complains on its console or asks any address for anything."""
    complaints: list[str] = []

    def opened(file: Path, hash: str = "", *, width: int = 1440, **context: Any) -> Page:
        made = chromium.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce", **context)
        page = made.new_page()
        page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda sent: None if sent.url.startswith("file:") else complaints.append(sent.url))
        page.goto(f"{file.as_uri()}{hash}")
        page.wait_for_selector("html[data-ready]", timeout=10_000)
        return page

    yield opened
    assert complaints == []
    for context in chromium.contexts:
        context.close()
