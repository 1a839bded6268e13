from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgen.store.ledger import Ledger, open_ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened
