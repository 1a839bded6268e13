"""The page of a run: one HTML file that needs no server, asks no address for anything, and runs no script but its own.

1. Everything that a template prints goes through `visible`, then through Jinja2's escaping.
2. What the browser lays out later travels as compressed JSON in an element that is no script.
3. The content-security policy names the page's script and style by their hashes: anything else that looks like a script
   is not run, wherever it came from, nothing is loaded, and the page's own script cannot write HTML (trusted types).

Not covered: a reader who copies a kernel out of the page and runs it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agentgen import __version__
from agentgen.records.idea import Became
from agentgen.records.trial import Speedup, Trial
from agentgen.report import figures
from agentgen.report.page import charts, costs, detail, story, tree
from agentgen.report.page.outcome import FAMILIES
from agentgen.report.page.text import visible
from agentgen.report.page.times import times
from agentgen.report.solution import Solution
from agentgen.report.table import SHORT_ID, best, verdict
from agentgen.store.rows import Letter

_HERE: Final = Path(__file__).parent
_SCRIPTS: Final = ("code.js", "diff.js", "show.js", "rows.js", "page.js")


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
    style = (_HERE / "page.css").read_text(encoding="utf-8")
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    spent = costs.spending(solution, letters)
    top = best(solution.evaluated)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            policy=_policy(script, style),
            # Marked as safe, so not escaped: our own files, and JSON in which there is no <.
            style=Markup(style),
            script=Markup(script),
            version=__version__,
            run=solution.run,
            verdict=verdict(solution.evaluated),
            tiles=_tiles(solution, top),
            best=tree.candidate_key(top.candidate) if top else None,
            picture=tree.lay_out(solution),
            families=FAMILIES,
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
            data=Markup(detail.packed(detail.details(solution, became))),
            edge=tree.edge,
            time=figures.time,
            minute=figures.minute,
            short=SHORT_ID,
        )
    )


def _environment() -> Environment:
    """Undefined names are errors, and no string reaches the page unseen."""
    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _policy(script: str, style: str) -> str:
    """Returns the content-security policy."""
    allowed = {kind: f"{kind}-src 'sha256-{_sha256(text)}'" for kind, text in (("script", script), ("style", style))}
    return (
        f"default-src 'none'; {allowed['script']}; {allowed['style']}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _tiles(solution: Solution, top: Trial | None) -> list[tuple[str, str, str]]:
    """Returns name, figure and small print of what one wants to know first."""
    accepted = sum(trial.accepted for trial in solution.evaluated)
    waiting = len(solution.candidates) - len(solution.evaluated)
    found: list[tuple[str, str, str]] = []
    if top and top.timing:
        quartiles = f"{figures.time(top.timing.low_us)} to {figures.time(top.timing.high_us)}"
        found.append(("best kernel", figures.time(top.timing.median_us), f"quartiles {quartiles}"))
        found += [_over(one) for one in _raced(top)]
        bound = solution.run.target.bound_us if solution.run.target else None
        found.append(("of the roofline", figures.percent(top.roofline_fraction), f"bound {figures.time(bound)}"))
    if top and top.worst_neighbour:
        near = top.worst_neighbour
        found.append(("at its worst neighbour", f"{near.speedup.ratio:.2f}×", f"over eager at {near.workload}"))
    small = f"{waiting} more not judged yet" if waiting else f"from {len(solution.ideas)} ideas"
    found.append(("accepted", f"{accepted} of {len(solution.evaluated)}", small))
    spent = solution.spent
    tokens = "tokens not stored" if spent.tokens is None else f"{spent.tokens:,} tokens"
    usd = figures.NOT_MEASURED if spent.cost_usd is None else f"${spent.cost_usd:,.2f}"
    found.append(("for the models", usd, f"{spent.requests} answers, {tokens}"))
    return found


def _raced(top: Trial) -> list[Speedup]:
    """The best baseline, and eager torch where that is another."""
    return [one for n, one in enumerate(top.speedups) if n == 0 or one.baseline == "eager"]


def _over(one: Speedup) -> tuple[str, str, str]:
    interval = f"95%: {one.low:.2f} to {one.high:.2f}"
    return f"over {one.baseline}", f"{one.ratio:.2f}×", interval if one.faster else f"{interval}, not beyond doubt"
