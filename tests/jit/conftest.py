"""What the tests of agentgen.jit share: a cache folder of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of our own, empty when the module's first test starts."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "agentgen" / "jit"


@pytest.fixture(autouse=True)
def _own_cache(cache: Path) -> None:  # pyright: ignore[reportUnusedFunction]
    pass
