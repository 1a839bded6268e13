"""`agentgen resume`: a run that waits for answers or its device, or was stopped, goes on where it was."""

from __future__ import annotations

import time

from agentgen import config, wiring
from agentgen.cli.options import (
    BudgetMinutes,
    BudgetTokens,
    BudgetUsd,
    Display,
    Json,
    MaxCandidates,
    OtherDevices,
    Sandbox,
    Wait,
)
from agentgen.cli.screen import screen
from agentgen.cli.solve import carry_out, priced_models, show
from agentgen.config import Layer
from agentgen.records.run import RunStatus


def resume(
    run: str,
    /,
    *,
    device: OtherDevices = None,
    sandbox: Sandbox = None,
    budget_usd: BudgetUsd = None,
    budget_tokens: BudgetTokens = None,
    budget_minutes: BudgetMinutes = None,
    max_candidates: MaxCandidates = None,
    wait: Wait = False,
    display: Display = None,
    json: Json = False,
) -> int:
    """Go on with a run.

    A run keeps its problem, kind of device, languages, models and the caps that are not given anew; a finished one is
    only shown again.

    Args:
        run: Id of a run, `latest`, or a run's folder.
    """
    start_s, console = time.monotonic(), screen(display)
    flags = Layer(
        sandbox=sandbox,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        budget_minutes=budget_minutes,
        max_candidates=max_candidates,
    )
    settings = config.here(flags)
    with wiring.ledger(settings) as ledger:
        known, settings = wiring.find_run(settings, ledger, run)
        if known.status is RunStatus.DONE:
            return show(console, settings, ledger, known.id, start_s=start_s, as_json=json)
        caps = wiring.given_caps(flags, known.caps)
        roster = priced_models(settings, known.model_copy(update={"caps": caps}))
        if caps != known.caps:
            ledger.set_caps(known.id, caps)
            known = known.model_copy(update={"caps": caps})
        return carry_out(
            known, settings, ledger, roster, console, start_s=start_s, device=device, wait=wait, as_json=json
        )
