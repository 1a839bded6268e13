"""`agentgen verify`: is this kernel right, honest and fast?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen.cli.kernel import Asked, evaluate
from agentgen.cli.options import ArithmeticOption, Device, Json, LanguageOption
from agentgen.config import Layer
from agentgen.records.run import Effort


def verify(
    *paths: Annotated[str, Parameter(name="PATHS", help="PROBLEM and CANDIDATE; with --reference, CANDIDATE only.")],
    reference: Path | None = None,
    device: Device = None,
    language: LanguageOption = None,
    arithmetic: ArithmeticOption = None,
    timing: Annotated[bool, Parameter(name="--timing", negative="--no-timing")] = True,
    json: Json = False,
) -> int:
    """Judge one kernel.

    Args:
        reference: KernelBench-style file that states the problem.
        timing: Race it against the baseline once it is known to be right.
    """
    layer = Layer(device=device, arithmetic=arithmetic)
    return evaluate(Asked(paths, reference, layer, language, Effort.QUICK, timing), as_json=json)
