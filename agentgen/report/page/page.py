"""The page of a run: one HTML file that needs no server, asks no address for anything, and runs no script but its own
(`page.frame` says how)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from agentgen.records.candidate import SHORT_ID
from agentgen.records.idea import Became
from agentgen.records.trial import Trial
from agentgen.report import figures
from agentgen.report.page import charts, costs, detail, frame, packing, story, tree
from agentgen.report.page.times import times
from agentgen.report.solution import Solution
from agentgen.report.table import best, verdict
from agentgen.store.rows import Letter

_STYLES: Final = ("base.css", "page.css")
_SCRIPTS: Final = ("theme.js", "code.js", "unpack.js", "diff.js", "show.js", "rows.js", "page.js")


def render(
    solution: Solution, became: Mapping[str, Became], letters: Sequence[Letter], ended: Mapping[str, str]
) -> str:
    """Returns the page.

    Args:
        solution: a run as it is now.
        became: what became of its ideas, by their ids.
        letters: its exchanges with models.
        ended: why some of them never got a usable answer, by their ids.
    """
    spent = costs.spending(solution, letters)
    top = best(solution.evaluated)
    return frame.frame(frame.HERE, _STYLES, _SCRIPTS).render(
        "page.html.j2",
        run=solution.run,
        verdict=verdict(solution.evaluated),
        best=tree.candidate_key(top.candidate) if top else None,
        tiles=_tiles(solution, top),
        picture=tree.lay_out(solution),
        counts=story.counts(solution),
        chain=story.chain(solution),
        roofline=charts.roofline(solution),
        progress=charts.progress(solution, spent),
        times=times(solution),
        troubles=story.troubles(solution),
        ended=[(letter, ended[letter.id]) for letter in letters if letter.id in ended],
        bills=costs.bills(letters),
        not_drawn=costs.not_drawn(letters),
        stages=costs.stage_seconds(solution),
        machine=figures.machine(solution.evaluated[-1].machine) if solution.evaluated else "",
        data=frame.safe_json(packing.packed(detail.details(solution, became))),
        edge=tree.edge,
        minute=figures.minute,
        short=SHORT_ID,
    )


def _tiles(solution: Solution, top: Trial | None) -> list[tuple[str, str, str]]:
    """Returns name, figure and small print of what one wants to know first."""
    bound = solution.run.target.bound_us if solution.run.target else None
    found = detail.tiles(top, "best kernel", f"bound {figures.time(bound)}") if top else []
    accepted = sum(trial.accepted for trial in solution.evaluated)
    waiting = len(solution.candidates) - len(solution.evaluated)
    small = f"{waiting} more not judged yet" if waiting else f"from {len(solution.ideas)} ideas"
    found.append(("accepted", f"{accepted} of {len(solution.evaluated)}", small))
    spent = solution.spent
    tokens = "tokens not stored" if spent.tokens is None else f"{spent.tokens:,} tokens"
    usd = figures.NOT_MEASURED if spent.cost_usd is None else f"${spent.cost_usd:,.2f}"
    found.append(("for the models", usd, f"{spent.requests} answers, {tokens}"))
    return found
