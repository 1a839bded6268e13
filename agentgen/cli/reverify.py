"""`agentgen reverify`: everything the judge can do, before a kernel is shown around."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen import config, wiring
from agentgen.cli.kernel import Asked, Subject, decide, evaluate
from agentgen.cli.options import ArithmeticOption, Device, Json, LanguageOption, Sandbox
from agentgen.config import Layer
from agentgen.errors import BadInput
from agentgen.records.run import Effort
from agentgen.records.trial import Depth
from agentgen.report.table import best
from agentgen.workers.devices import find_device


def reverify(
    *paths: Annotated[str, Parameter(name="PATHS", help="A RUN, whose best kernel is meant; or as for verify.")],
    reference: Path | None = None,
    device: Device = None,
    language: LanguageOption = None,
    arithmetic: ArithmeticOption = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> int:
    """Certify one kernel: as bench, then memory and race checkers, a hundred draws, a second measurement.

    Args:
        reference: KernelBench-style file that states the problem.
    """
    layer = Layer(device=device, arithmetic=arithmetic, sandbox=sandbox)
    asked = Asked(paths, reference, layer, language, Effort.FULL, timing=True, depth=Depth.CERTIFY)
    if len(paths) == 1 and reference is None:
        return decide(_best_of(paths[0], layer), asked, as_json=json)
    return evaluate(asked, as_json=json)


def _best_of(given: str, layer: Layer) -> Subject:
    settings = config.here(layer)
    with wiring.ledger(settings) as ledger:
        run, settings = wiring.find_run(settings, ledger, given)
        top = best(ledger.trials(run.id))
        sources = {row.candidate.id: row.candidate for row in ledger.candidates(run.id)}
    if top is None:
        raise BadInput(f"run {run.id} has no ranked kernel; give PROBLEM and CANDIDATE")
    device = find_device(layer.device) if layer.device else run.device.split(",")[0]
    arithmetic = wiring.find_arithmetic(settings, run.problem, device) if layer.arithmetic else run.arithmetic
    return Subject(f"{top.candidate[:8]} of run {run.id}", run.problem, sources[top.candidate], device, arithmetic)
