"""Windows in which inputs come again beside windows in which none does: what the check "every call counts" is about."""

from __future__ import annotations

from agentgen.records.problem import Arithmetic
from agentgen.verify.checks import tripwires
from agentgen.verify.checks.audit import Audit
from agentgen.verify.checks.processor import Work, work
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session
from agentgen.verify.stopwatch import net_us
from agentgen.verify.timing import Race

ROUNDS, SURE_ROUNDS, MOST_ROUNDS = 3, 8, 25
REPEATS = 4
"""How often an input comes again in the windows that are compared with windows in which none does."""


class Repeats:
    """Of a CPU's timed rig; the second rig is built when it is first needed, and kept."""

    def __init__(self, main: Rig, arithmetic: Arithmetic, look_every: int) -> None:
        self._main = main
        self._arithmetic = arithmetic
        self._look_every = look_every
        self._many: Rig | None = None

    def race(self, session: Session, raced: Race, findings: Findings) -> None:
        """Times windows of as many calls on rotating inputs and on inputs that never come twice, more of them where a
        machine that others use too delays them.

        Raises:
            Rejected: CHEATED, or what the audit finds.
        """
        many = self._built()
        session.share(many.region)
        calls = min(raced.calls, many.sets)
        audits = [(rig, Audit(rig, self._arithmetic, calls, self._look_every, findings)) for rig in (many, self._main)]
        pairs_us: list[tuple[float, float]] = []
        worked = Work(), Work()
        for turn in range(MOST_ROUNDS):
            pair = [_window(session, rig, calls, audit, raced.copy_us) for rig, audit in audits]
            if turn:  # in the first the guest has not seen the region's pages yet: 2.0 ms a call instead of 0.5
                pairs_us.append((pair[0][0], pair[1][0]))
                worked = worked[0] + pair[0][1], worked[1] + pair[1][1]
            if turn >= ROUNDS:
                without_us, raced_us = (min(times) for times in zip(*pairs_us, strict=True))
                # Nor than in the race itself: a candidate that forgets its answers when the machine stumbles was once
                # taken for one that has none, after three such pairs.
                if not tripwires.longer(without_us, min(raced_us, raced.median_us)):
                    break
            if turn >= SURE_ROUNDS and all(tripwires.longer(*pair) for pair in pairs_us):
                break
        tripwires.every_call(findings, pairs_us, worked if session.sampled_by_kernel else (None, None))

    def _built(self) -> Rig:
        if self._many is None:
            main = self._main
            self._many = Rig(main.reference, "cpu", 0, rotate=True, sets=REPEATS * main.sets)
            self._many.draw_inputs(Family.NORMAL)
        return self._many


def _window(session: Session, rig: Rig, calls: int, audit: Audit, copy_us: float) -> tuple[float, Work]:
    """Returns the time of a call of a window, without the copy, and the work in all of it."""
    window = session.timed(rig, calls, audit)
    audit.judge()
    # Beside other work the copy may seem to take longer than a window: of two negative figures neither is longer.
    return net_us(1e6 * window.seconds / calls, copy_us), work(window.samples, calls)
