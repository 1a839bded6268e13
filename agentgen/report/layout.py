"""How every table looks: no frame, a rule under the heads, wide cells wrapped."""

from __future__ import annotations

from collections.abc import Collection

from rich import box
from rich.table import Table


def table(title: str | None, *columns: str, right: Collection[str] = (), wrap: Collection[str] | None = None) -> Table:
    """Returns an empty table.

    Args:
        title: stands above it, on the left.
        columns: their heads.
        right: columns of numbers.
        wrap: the only columns that give way on a narrow screen; None: all do.
    """
    empty = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    empty.padding = (0, 1, 0, 0)
    for name in columns:
        fixed = wrap is not None and name not in wrap
        empty.add_column(name, justify="right" if name in right else "left", no_wrap=fixed, overflow="fold")
    return empty
