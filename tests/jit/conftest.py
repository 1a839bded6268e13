"""What the tests of agentgen.jit share: a cache folder of their own, and skips where a compiler is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgen import jit


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


@pytest.fixture(scope="module")
def gpp() -> None:
    """Skips where C++ cannot be compiled."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on the PATH")


@pytest.fixture(scope="module")
def nvrtc(cache: Path) -> None:
    """Skips where CUDA source cannot be compiled."""
    try:
        jit.cuda('extern "C" __global__ void probe(int n) {}')
    except RuntimeError as error:
        if "libnvrtc not found" not in str(error):
            raise
        pytest.skip(str(error))
