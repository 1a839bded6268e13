"""`agentgen evaluate`: judges the candidates of a run that have no trial yet, and does nothing else.

For a machine with the device and without a network: copy a run's folder there, evaluate it, copy it back, resume.
"""

from __future__ import annotations

from agentgen import config, wiring
from agentgen.cli.options import Json, Sandbox
from agentgen.cli.screen import screen
from agentgen.cli.solve import show
from agentgen.config import Layer
from agentgen.report.live import watching
from agentgen.search.loop import evaluate_pending


def evaluate(run: str, /, *, sandbox: Sandbox = None, json: Json = False) -> int:
    """Judge what is pending of a run; no model is asked.

    Args:
        run: Id of a run, `latest`, or a run's folder.
    """
    console = screen()
    settings = config.here(Layer(sandbox=sandbox))
    with wiring.ledger(settings) as ledger:
        known, settings = wiring.find_run(settings, ledger, run)
        judge = wiring.judge(settings, known.problem, known.device, known.arithmetic, known.effort)
        display = watching(console, f"{known.problem.name} on {known.device}")
        with wiring.packed(settings, ledger, known), judge, display as watch:
            count = evaluate_pending(known, ledger, judge, watch)
        console.print(f"{count} candidates evaluated")
        show(console, settings, ledger, known.id, as_json=json)
    return 0
