"""The words that models are given, one Markdown template a file, with `$name` where a value goes.

Strict both ways: a missing value and an unused one raise, so a template and its caller cannot drift apart.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from string import Template


def render(name: str, **values: object) -> str:
    """Returns template `name` (a file here or in a folder here, without its `.md`), its places filled, with no newline
    at its end.

    Values are put in as they are: a `$` within them is text.

    Raises:
        KeyError: `values` are not exactly the names in the template.
    """
    template = _template(name)
    wanted = set(template.get_identifiers())
    if wanted != set(values):
        raise KeyError(f"prompt {name!r} takes {sorted(wanted)}, not {sorted(values)}")
    return template.substitute({key: str(value) for key, value in values.items()}).strip("\n")


@cache
def _template(name: str) -> Template:
    return Template(files(__name__).joinpath(f"{name}.md").read_text("utf-8"))
