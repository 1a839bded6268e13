"""The one JSON object of `--json`: on stdout, alone, and readable by every JSON parser."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import cast

from agentgen.report.unseen import UNSEEN

_NO = ("no", "n", "0", "false", "f")
"""What an option that is a switch may be given, as cyclopts reads it."""


def wants_json(arguments: Sequence[str]) -> bool:
    """Returns whether a command line asks for JSON, also one that cannot be taken apart."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    given = [option.partition("=")[2].lower() for option in options if option.partition("=")[0] == "--json"]
    return bool(given) and given[-1] not in _NO


def answer(value: Mapping[str, object]) -> None:
    """Writes the answer of a command. Not-a-number and infinity, which JSON has not, become null."""
    text = json.dumps(_finite(value), allow_nan=False, ensure_ascii=False, indent=2)
    # Texts of models and kernels are in it, and a terminal may be what reads it.
    write(UNSEEN.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n")


def write(text: str) -> None:
    """Writes to stdout.

    Raises:
        StoreUnavailable: it cannot be written.
    """
    sys.stdout.write(text)
    sys.stdout.flush()


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("Sequence[object]", value)]
    return value
