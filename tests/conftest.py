"""Which tests run by default, and why the others do not."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too, as CI does")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: starts judges for seconds each; run with --slow, as CI does")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)
