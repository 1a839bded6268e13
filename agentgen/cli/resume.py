"""`agentgen resume`: a run that waits for answers or its device, or was stopped, goes on where it was."""

from __future__ import annotations

from agentgen import config, wiring
from agentgen.cli.options import Json, Sandbox, Wait
from agentgen.cli.solve import carry_out
from agentgen.config import Layer


def resume(run: str, /, *, sandbox: Sandbox = None, wait: Wait = False, json: Json = False) -> int:
    """Go on with a run.

    A run keeps its problem, device, languages and models; a finished one is only shown again.

    Args:
        run: Id of a run, `latest`, or a run's folder.
    """
    settings = config.here(Layer(sandbox=sandbox))
    with wiring.ledger(settings) as ledger:
        known, settings = wiring.find_run(settings, ledger, run)
        return carry_out(known, settings, ledger, wiring.open_models(settings, known), wait=wait, as_json=json)
