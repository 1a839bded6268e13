"""What every page is made in, that of a run and those of the leaderboard: templates, one style, one script, one policy.

1. Everything that a template prints goes through `visible`, then through Jinja2's escaping.
2. Sources, and what else the browser lays out later, travel as JSON in an element that is no script.
3. The content-security policy names the page's script and style by their hashes: anything else that looks like a script
   is not run, wherever it came from, nothing is loaded, and the page's own script cannot write HTML (trusted types).

Not covered: a reader who copies a kernel out of the page and runs it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agentgen import __version__
from agentgen.report import figures
from agentgen.report.page.outcome import FAMILIES
from agentgen.report.page.text import visible
from agentgen.report.unseen import JAVASCRIPT

HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Frame:
    """All that pages of one kind have in common."""

    templates: Environment
    style: str
    script: str

    def render(self, template: str, **names: object) -> str:
        """Returns a page: a template that extends `frame.html.j2`."""
        return self.templates.get_template(template).render(
            policy=_policy(self.script, self.style),
            # Marked as safe, so not escaped: our own files.
            style=Markup(self.style),
            script=Markup(self.script),
            version=__version__,
            families=FAMILIES,
            time=figures.time,
            **names,
        )


def frame(folder: Path, styles: Sequence[str], scripts: Sequence[str]) -> Frame:
    """Returns the frame of one kind of page.

    Args:
        folder: its own; templates, styles and scripts that are not there are those beside this file.
        styles: in their order.
        scripts: likewise.
    """
    script = f'"use strict";\nconst UNSEEN = {JAVASCRIPT};\n{_joined(folder, scripts)}'
    return Frame(_environment(folder), _joined(folder, styles), script)


def safe_json(text: str) -> Markup:
    """Returns JSON for an element of a page: with no <, it can neither end the element nor begin a comment."""
    return Markup(text.replace("<", "\\u003c"))


def _joined(folder: Path, names: Sequence[str]) -> str:
    files = ((folder / name) if (folder / name).exists() else HERE / name for name in names)
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _environment(folder: Path) -> Environment:
    """Undefined names are errors, and no string reaches the page unseen."""
    return Environment(
        loader=FileSystemLoader([folder / "templates", HERE / "templates"]),
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
