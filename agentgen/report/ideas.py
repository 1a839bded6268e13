"""What became of the ideas of a run, beside what was predicted of them: as a table, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agentgen.records.idea import Became, Idea
from agentgen.report import figures
from agentgen.report.layout import table


def ideas_table(ideas: Mapping[str, Idea], became: Mapping[str, Became]) -> RenderableType:
    """Returns a row for each idea, those that reached most first.

    Args:
        ideas: by id.
        became: by the idea's id.
    """
    numbers = "predicted", "reached", "candidates"
    shown: Table = table("ideas", "idea", *numbers, right=numbers, wrap=("idea",))
    for idea in sorted(ideas.values(), key=lambda idea: _rank(became[idea.id])):
        of = became[idea.id]
        predicted = f"{idea.predicted_speedup:.2f}×" if idea.predicted_speedup else figures.NOT_MEASURED
        title = Text(idea.title, no_wrap=True, overflow="ellipsis")
        shown.add_row(title, predicted, _reached(idea, of), str(of.candidates))
    shown.caption = (
        "speedup over the kernel that an idea was had on (on the reference: over the best baseline): as predicted, and "
        "as its best implementation reached it, with the 95% interval"
    )
    return shown


def became_json(idea: Idea, became: Mapping[str, Became]) -> dict[str, object]:
    """Returns what `solve --json` says of an idea's outcome."""
    of = became.get(idea.id)
    return {"became": of.model_dump(mode="json") if of else None}


def _reached(idea: Idea, of: Became) -> Text:
    if idea.same_as:
        return Text("known", style="dim")
    if of.gain:
        return Text(f"{of.gain.ratio:.2f}× [{of.gain.low:.2f}, {of.gain.high:.2f}]")
    if of.failure:
        return Text("abandoned", style="red")
    return Text(figures.NOT_MEASURED)


def _rank(of: Became) -> float:
    return -of.gain.low if of.gain else 0.0
