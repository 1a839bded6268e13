"""A folder with the small problem of `e2e_square`."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_square import FORGETS_THE_WEIGHT, HONEST, PROBLEM, REFERENCE


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with one problem, to run commands in."""
    folder = tmp_path / "problems" / "square"
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "problem.yaml").write_text(PROBLEM)
    (tmp_path / "honest.py").write_text(HONEST)
    (tmp_path / "forgets.py").write_text(FORGETS_THE_WEIGHT)
    return tmp_path
