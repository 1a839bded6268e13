"""`agentgen verify`: is this kernel right, honest and fast?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen.cli.answer import answer
from agentgen.cli.kernel import Asked, evaluate
from agentgen.cli.options import ArithmeticOption, Device, Display, Json, LanguageOption, Sandbox
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.records.run import Effort
from agentgen.report.trial import catalogue
from agentgen.workers import local


def verify(
    *paths: Annotated[str, Parameter(name="PATHS", help="PROBLEM and CANDIDATE; with --reference, CANDIDATE only.")],
    reference: Path | None = None,
    device: Device = None,
    language: LanguageOption = None,
    arithmetic: ArithmeticOption = None,
    sandbox: Sandbox = None,
    timing: Annotated[bool, Parameter(name="--timing", negative="--no-timing")] = True,
    explain: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    display: Display = None,
    json: Json = False,
) -> int:
    """Judge one kernel.

    Args:
        reference: KernelBench-style file that states the problem.
        timing: Race it against the baseline once it is known to be right.
        explain: Say of each check what it catches and what not; without PATHS, of all there are.
    """
    explanations = local.explain() if explain else {}
    if explain and not paths:
        screen().print(catalogue(explanations))
        if json:
            answer({"checks": dict(explanations)})
        return 0
    layer = Layer(device=device, arithmetic=arithmetic, sandbox=sandbox)
    asked = Asked(paths, reference, layer, language, Effort.QUICK, timing, display, explanations=explanations)
    return evaluate(asked, as_json=json)
