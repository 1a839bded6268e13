"""Looks at outputs of timed windows: checking and timing are one command, and any output may be looked at."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from functools import partial

import torch

from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.verify.checks.spots import Spots
from agentgen.verify.checks.values import inputs_unchanged, judged
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, Rejected, check
from agentgen.verify.numerics import Pool
from agentgen.verify.rig import Rig

WHOLLY_EVERY = 4
"""Of so many windows one, chosen in secret, has all its inputs drawn anew: 4,096 values that change places do not show
in every answer (the mean of 1e9 of them, any sum over all)."""


class Audit:
    """Rewrites the inputs of each window, and in one of n, chosen in secret, looks at one call's outputs: the last
    call's, or those of one at random.

    Inputs change when everything is queued and the gate still spins (GPU) or the window is armed (CPU). All outputs are
    poisoned then, so that nobody can tell which will be looked at, and copied when the clock has stopped: a guest that
    works before has the wrong inputs, one that says too early that it is done has no outputs yet.
    """

    def __init__(
        self, rig: Rig, arithmetic: Arithmetic, calls: int, every: int, findings: Findings, *, wholly: bool = True
    ) -> None:
        self.looked = 0
        self.strange: tuple[Family, ...] = ()
        """Draws the first sets of the next window from these value families, and looks at all of them; `race` takes no
        time from that window. A kernel that knows when it is timed may be right on normal numbers only."""
        self._rig = rig
        self._arithmetic = arithmetic
        self._calls = calls
        self._every = every
        self._wholly = wholly
        self._windows = self._unseen = 0
        self._findings = findings
        self._spots = Spots(rig, findings)
        self._aims: list[int] = []
        self._seen: list[list[torch.Tensor]] = []

    def before(self) -> None:
        """Rewrites inputs, poisons outputs and chooses among them."""
        self._windows += 1
        used = min(self._calls, self._rig.sets)  # the window comes no further
        self._rig.touch_inputs(used, wholly=self._wholly and secrets.randbelow(WHOLLY_EVERY) == 0)
        for which, family in enumerate(self.strange):
            self._rig.draw_set(which, family)
        # By chance alone a short race might never be looked at.
        self._unseen += 1
        look = secrets.randbelow(self._every) == 0 or self._unseen >= self._every
        self._unseen = 0 if look else self._unseen
        self._aims = [self._choice(last=bool(secrets.randbelow(2)))] if look else []
        self._aims = list(range(len(self.strange))) or self._aims
        self._rig.poison_outputs(range(used))

    def _choice(self, *, last: bool) -> int:
        sets = self._rig.sets
        return (self._calls - 1) % sets if last else secrets.randbelow(min(self._calls, sets))

    def after(self) -> None:
        """Copies the outputs that were chosen, and on a CPU some elements of all."""
        self._seen = [self._rig.snapshot(which) for which in self._aims]
        if not self._rig.outputs[0][0].is_cuda:
            self._spots.take(min(self._calls, self._rig.sets))

    def compare(self, computed: Collection[int]) -> None:
        """Compares the window's outputs with what torch has computed there since, on the same inputs.

        Raises:
            Rejected: WRONG_VALUES.
        """
        self._spots.compare(computed)

    def judge(self) -> None:
        """Compares them with the oracle.

        Raises:
            Rejected: WRONG_VALUES: right when checked, wrong when timed.
        """
        for which, seen in zip(self._aims, self._seen, strict=True):
            family = self.strange[which] if self.strange else Family.NORMAL
            which_one = f"of {self._rig.reference.workload}" if self.strange else self._windows
            place, exact = f"timed window {which_one}", self._rig.selects
            new_pool = partial(Pool, place, family.value, self._arithmetic, must_be_exact=exact)
            pool = judged(self._rig, {which: seen}, new_pool)
            if family is not Family.NORMAL:  # that was asked when values were checked
                self._findings.accuracy.append(pool.accuracy())
            self.looked += 1
            inputs_unchanged(self._findings, self._rig, which)
            values_while_timed(self._findings, pool, self.looked)
        for which in range(len(self.strange)):
            self._rig.draw_set(which, Family.NORMAL)
        self._seen, self.strange = [], ()


@check("values while timed")
def values_while_timed(pool: Pool, looked: int) -> str:
    """Catches kernels that are right when checked and do less when timed: outputs of timed windows are compared with
    the oracle, on inputs that were rewritten for that window. Also work before the gate opens, an early mark, replayed
    outputs, and work put off until after the window, because outputs are taken the moment the clock stops.

    Does not catch: a call in between whose output nobody looked at (which ones is drawn anew for every window).
    """
    wrong = pool.problems()
    if wrong:
        raise Rejected(Outcome.WRONG_VALUES, *wrong)
    return f"{looked} outputs of timed windows within the gate"
