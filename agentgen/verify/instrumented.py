"""Whose work is it? A guest of its own runs `main` under instruments, then on poisoned memory; on a CPU the sampler of
processor time looks at the timed windows as well, where a candidate that knows the instruments would do otherwise."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic, OwnWork, Problem
from agentgen.verify.checks import native, own_work, state
from agentgen.verify.checks.audit import Audit
from agentgen.verify.checks.kernels import own_kernels
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session, Timed

LONGEST_RECORDED_S = 20.0
RECORDED_S = 0.3
"""Of calls under a CPU's sampler, which sees some 250 moments in a second of processor time."""


@dataclass(frozen=True)
class Instrumented:
    """What the instrumented guest showed."""

    call_us: float | None
    """Of a call: in which kernels ran, on a GPU (None: no CUPTI), by the wall clock on a CPU."""
    dispatched: Mapping[str, int]


class Holder(Protocol):
    """What is needed of a judge."""

    problem: Problem
    device: str
    arithmetic: Arithmetic
    main: Rig

    @property
    def smallest(self) -> Rig: ...
    @property
    def quickest_us(self) -> float: ...
    def habits(self, session: Session, candidate: Candidate, findings: Findings) -> None: ...


def audit(judge: Holder, session: Session, candidate: Candidate, findings: Findings) -> Instrumented:
    """Runs `main` in a guest that is to be instrumented."""
    rig, policy = judge.main, judge.problem.own_work
    session.construct(rig)
    rig.draw_weights()
    session.set_weights(rig)
    rig.draw_inputs(Family.NORMAL)
    session.run(rig, 1)
    start = time.perf_counter()
    session.run(rig, 1)
    calls = _recorded_calls(judge, time.perf_counter() - start)
    looking = Audit(rig, judge.arithmetic, calls, 1, findings)
    looking.before()
    start = time.perf_counter()
    claim = session.run(rig, calls, record=True)
    wall_us = 1e6 * (time.perf_counter() - start)
    looking.after()
    looking.judge()
    own_work.dispatches_no_compute(findings, claim.dispatched, policy)
    own_kernels(findings, claim.kernels, candidate.source, session.builds, policy)
    if judge.device == "cpu":
        libraries = session.libraries()
        native.borrows_no_symbols(findings, libraries, policy)
        native.spends_time_in_own_code(findings, claim.samples or {}, libraries, claim.dispatched, policy)
    # Last: from here on a CPU fills all memory that is allocated.
    state.poisoned_memory(findings, session, rig, judge.arithmetic)
    if judge.smallest is not rig:
        session.construct(judge.smallest)
        session.set_weights(judge.smallest)
    judge.habits(session, candidate, findings)
    instrumented_us = wall_us if judge.device == "cpu" else claim.busy_us
    return Instrumented(None if instrumented_us is None else instrumented_us / calls, claim.dispatched)


def whose_time(
    session: Session, seen: Instrumented, windows: Sequence[Timed], policy: OwnWork, findings: Findings
) -> None:
    """Looks at the processor time of timed windows, and at the libraries of the guest that was timed."""
    samples: Counter[str] = Counter()
    for window in windows:
        samples.update(window.claim.samples or {})
    libraries = session.libraries()
    native.borrows_no_symbols.at("timed")(findings, libraries, policy)
    native.spends_time_in_own_code.at("timed")(findings, samples, libraries, seen.dispatched, policy)


def _recorded_calls(judge: Holder, call_s: float) -> int:
    """Calls under instruments, of a candidate that takes `call_s` for one."""
    if judge.device != "cpu":
        return judge.main.sets
    wanted = 1e6 * RECORDED_S / judge.quickest_us
    return max(judge.main.sets, int(min(wanted, LONGEST_RECORDED_S / call_s)))
