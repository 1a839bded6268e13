"""What changed between two reports, for people and for programs: a line for each change, regressions first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from agentgen.scoring.batch import Report
from agentgen.scoring.gate import Change


@dataclass(frozen=True)
class Compared:
    """An evaluation beside its baseline."""

    old: Report
    changes: tuple[Change, ...]
    least_told: Mapping[str, float]
    """Of each case whose times were compared: the smallest slowdown that is told from chance nine times in ten."""

    @property
    def regression(self) -> bool:
        """Whether something got worse."""
        return any(change.regression for change in self.changes)

    def shown(self) -> RenderableType:
        """Returns the changes and the last word on them."""
        lines = [Text(change.line, style="red" if change.regression else "") for change in self.changes]
        if least := self.least_told:
            widest = max(least, key=lambda name: least[name])
            ends = f"{100 * min(least.values()):.1f}%"
            if len(least) > 1:
                ends += f" to {100 * least[widest]:.1f}% ({widest})"
            told = f"told from chance nine times in ten: slowdowns from {ends} on"
            lines.append(Text(f"times of {len(least)} cases compared; {told}"))
        count = sum(change.regression for change in self.changes)
        words = "no regression" if count == 0 else "1 regression" if count == 1 else f"{count} regressions"
        return Group(*lines, Text(f"against the baseline{_origin(self.old)}: {words}"))

    def summary(self) -> dict[str, Any]:
        """Returns the same for programs."""
        return {
            "regression": self.regression,
            "changes": [change.model_dump(mode="json") | {"regression": change.regression} for change in self.changes],
            "least_slowdown_told": dict(self.least_told),
        }


def _origin(old: Report) -> str:
    about = old.experiment_metadata or {}
    commit = about.get("commit") or {}
    named = f"commit {commit['id'][:8]}{', changed' if commit['changed'] else ''}" if commit else None
    parts = [part for part in (about.get("date"), named) if part]
    return f" ({', '.join(parts)})" if parts else ""
