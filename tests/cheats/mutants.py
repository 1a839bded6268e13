"""A judge that lacks some of its checks."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from agentgen.verify.findings import Findings, Named, Rejected


@contextmanager
def without(names: Collection[str]) -> Generator[None]:
    """Switches checks off in this process: they look, and what they find is of no consequence."""
    look = Named.__call__

    def blind(check: Named[Any], findings: Findings, *args: Any, **kwargs: Any) -> None:
        if check.name not in names:
            look(check, findings, *args, **kwargs)
            return
        try:
            look(check, Findings(), *args, **kwargs)
        except Rejected:
            findings.note(check.name, None, "switched off")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Named, "__call__", blind)
        yield
