"""What a user of this package is told: a compiler's refusal, cut to its errors, and a name that was not built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


class CompileError(RuntimeError):
    """The compiler refused the source. The message has its first errors, `log` everything it said."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def refused(title: str, log: str, notes: Sequence[str] = ()) -> CompileError:
    """The errors of `log`, each with what the compiler shows below it; warnings are left to `.log`."""
    kept: list[str] = []
    keep = False
    for line in log.splitlines():
        if re.search(
            r"\b(error|fatal|warning|note|remark|info)\b[^:]{0,12}:|^Remark|detected in the|undefined reference", line
        ):
            keep = re.search(r"\b(error|fatal)\b[^:]{0,12}:|undefined reference", line) is not None
        if keep and line.strip():
            kept.append(line[:200])
    count = sum(1 for line in kept if re.search(r"\berror\b\s*(#[\w-]+)?\s*:", line))
    shown = kept[:30] + [f"... {len(kept) - 30} more lines in .log"] * (len(kept) > 30) or log.splitlines()[-30:]
    return CompileError("\n".join([f"{title}, {max(count, 1)} error(s):", *shown, *notes[:8]]), log)


def unknown(name: str, built: Iterable[str]) -> AttributeError:
    """The error for `kernels.name` or `library.name` where only `built` can be called."""
    there = ", ".join(built) or "none"
    return AttributeError(f'nothing called `{name}` was built; there are: {there}. Is it defined extern "C"?')
