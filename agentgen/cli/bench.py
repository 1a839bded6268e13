"""`agentgen bench`: `verify` with full effort, that is against every baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen.cli.kernel import Asked, evaluate
from agentgen.cli.options import ArithmeticOption, Device, Display, Json, LanguageOption, Sandbox
from agentgen.config import Layer
from agentgen.records.run import Effort


def bench(
    *paths: Annotated[str, Parameter(name="PATHS", help="PROBLEM and CANDIDATE; with --reference, CANDIDATE only.")],
    reference: Path | None = None,
    device: Device = None,
    language: LanguageOption = None,
    arithmetic: ArithmeticOption = None,
    sandbox: Sandbox = None,
    display: Display = None,
    json: Json = False,
) -> int:
    """Judge one kernel against every baseline.

    Args:
        reference: KernelBench-style file that states the problem.
    """
    layer = Layer(device=device, arithmetic=arithmetic, sandbox=sandbox)
    asked = Asked(paths, reference, layer, language, Effort.FULL, timing=True, display=display)
    return evaluate(asked, as_json=json)
