"""`agentgen evaluate`: judges the candidates of a run that have no trial yet, and does nothing else.

For a machine with the device and without a network: copy a run's folder there, evaluate it, copy it back, resume.
"""

from __future__ import annotations

import time

from agentgen import config, wiring
from agentgen.cli.options import Display, Json, OtherDevices, Sandbox
from agentgen.cli.screen import screen
from agentgen.cli.solve import show
from agentgen.config import Layer
from agentgen.records.run import Caps
from agentgen.report.live.display import watching
from agentgen.search.loop import evaluate_pending
from agentgen.workers.devices import run_devices


def evaluate(
    run: str, /, *, device: OtherDevices = None, sandbox: Sandbox = None, display: Display = None, json: Json = False
) -> int:
    """Judge what is pending of a run; no model is asked.

    Args:
        run: Id of a run, `latest`, or a run's folder.
    """
    start_s, console = time.monotonic(), screen(display)
    settings = config.here(Layer(sandbox=sandbox))
    with wiring.ledger(settings) as ledger:
        known, settings = wiring.find_run(settings, ledger, run)
        places = run_devices(known, device)
        judge = wiring.run_judge(settings, known, places)
        title = f"{known.problem.name} on {', '.join(places)}"
        shown = watching(console, console.display, title, Caps(), start_s)  # no model is asked: no cap counts
        with wiring.packed(settings, ledger, known), judge, shown as watch:
            count = evaluate_pending(known, ledger, judge, watch)
        console.print(f"{count} candidates evaluated")
        show(console, settings, ledger, known.id, start_s=start_s, as_json=json)
    return 0
