"""The judge of one problem on one device: what it holds from candidate to candidate, and its stages. `evaluation` leads
a candidate through them."""

from __future__ import annotations

from collections.abc import Mapping

from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Ceilings, Machine, Target
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Effort
from agentgen.records.trial import Outcome, Timing
from agentgen.sandbox.process import ProcessSandbox
from agentgen.sandbox.protocol import Sandbox
from agentgen.verify import ceilings, roofline
from agentgen.verify import machine as machines
from agentgen.verify.baselines import Call, baselines
from agentgen.verify.check import Audit, Findings, check_workload
from agentgen.verify.clock import Page
from agentgen.verify.draws import Family
from agentgen.verify.inputs import described
from agentgen.verify.own_work import judge_coverage
from agentgen.verify.rig import build_rigs
from agentgen.verify.session import Session
from agentgen.verify.timing import Race, Stopwatch, race

QUIET_TOLERANCE = 0.10
"""A baseline that runs this much slower while a guest lives than before it did is being slowed."""
INTERPRETED = (Family.NORMAL, Family.SHIFTED, Family.INTEGERS)
"""Triton's interpreter takes 0.1 s for what a GPU does in microseconds: three families on the small workloads."""


class Judge:
    """Holds the reference, the inputs and the clock."""

    def __init__(self, problem: Problem, device: str, arithmetic: Arithmetic, effort: Effort) -> None:
        """Builds references and rigs, measures ceilings and quiet baselines, starts the guests' zygote beside that.

        Raises:
            ReferenceInvalid: the problem does not run.
            MachineFailure: the device or the sandbox does not.
        """
        self.problem = problem
        self.device = device
        self.machine: Machine = machines.describe(device)
        self.arithmetic = arithmetic.on(self.machine.device_type)
        self._arch = machines.architecture(self.machine)
        self._sandbox: Sandbox = ProcessSandbox(device, self._arch)
        self._interpreter: Sandbox | None = None
        # The judge's own gate has words that no guest can write.
        self._page = Page() if device != "cpu" else None
        cache = self.machine.last_level_cache_bytes
        self._rigs = build_rigs(problem, device, cache)
        self.main = next(iter(self._rigs.values()))
        self._sandbox.wait_until_warm()  # before anything is measured: it imports torch on a core of its own
        self._ceilings: Ceilings = ceilings.measure(device, _arithmetics(self.machine, self.arithmetic))
        self._baselines: Mapping[str, Call] = baselines(self.main.reference, self.arithmetic, effort)
        self._work = roofline.work_of(
            self.main.reference, device, problem.flops if self._is_whole() and device != "cpu" else None
        )
        self.main.draw_weights()
        self.main.draw_inputs(Family.NORMAL)
        self._watch = Stopwatch(self.main, self._page, self._arch)
        self._quiet_us = self._watch.quiet_us(self._baselines)
        self._floor_us = roofline.byte_floor_us(
            self.main.reference, cache, ceilings.bandwidth_limit(self.machine, self._ceilings)
        )

    def _is_whole(self) -> bool:
        """Whether the problem's own `main` is timed, not one of its smaller workloads."""
        return self.main.reference.workload == self.problem.main.name

    def target(self) -> Target:
        """Returns what is known before any candidate comes."""
        bound_us, bound_by = self._work.bound(self._ceilings, self.arithmetic)
        reference = self.main.reference
        return Target(
            problem=self.problem.name,
            arithmetic=self.arithmetic,
            machine=self.machine,
            ceilings=self._ceilings,
            workload=reference.workload,
            constants=reference.constants,
            inputs=tuple(map(described, reference.inputs)),
            outputs=tuple(map(described, reference.outputs)),
            parameters={name: described((tuple(t.shape), t.dtype)) for name, t in self.main.initial_state.items()},
            flops=self._work.flops,
            bytes_moved=self._work.bytes_moved,
            bound_us=bound_us,
            bound_by=bound_by,
            baselines_us=self._quiet_us,
        )

    def start_guest(self, candidate: Candidate) -> Session:
        """Starts a fresh guest, in Triton's interpreter where a Triton candidate meets a CPU."""
        if candidate.language is Language.TRITON and self.device == "cpu":
            self._interpreter = self._interpreter or ProcessSandbox("cpu", interpret=True)
            return Session(self._interpreter.start(candidate.id), None)
        return Session(self._sandbox.start(candidate.id), Page() if self._page else None)

    def close(self) -> None:
        """Ends all guests and gives the memory back."""
        for sandbox in (self._sandbox, self._interpreter):
            if sandbox:
                sandbox.close()
        if self._page:
            self._page.close()

    def check(self, session: Session, candidate: Candidate, findings: Findings) -> None:
        """Checks every workload, small ones first: they find most mistakes in a fraction of the time."""
        interpreted = candidate.language is Language.TRITON and self.device == "cpu"
        # What the interpreter runs is meant for a GPU: there the problem's arithmetic is what it says.
        gpu = self.problem.arithmetic
        arithmetic = gpu if interpreted and gpu.on("cpu") is self.arithmetic else self.arithmetic
        # `main` is too slow for the interpreter, unless nothing else is there.
        names = list(reversed(self._rigs))
        names = names[:-1] or names if interpreted else names
        families = INTERPRETED if interpreted else tuple(Family)
        for name in names:
            check_workload(session, self._rigs[name], arithmetic, families, findings)

    def audit(self, session: Session, findings: Findings) -> None:
        """Runs `main` once in an instrumented guest and decides whose work the answer was."""
        rig = self.main
        session.construct(rig)
        rig.draw_weights()
        session.set_weights(rig)
        rig.draw_inputs(Family.NORMAL)
        session.run(rig, 1)
        rig.poison_outputs()
        claim = session.run(rig, 1, record=True)
        looked = Audit(rig, self.arithmetic, 1, 1, findings)
        looked()
        judge_coverage(claim.dispatched, self.problem.own_work, findings)

    def race(self, session: Session, findings: Findings) -> Race:
        """Races a warm guest against the baselines at `main`."""
        rig = self.main
        rig.draw_weights()
        session.set_weights(rig)
        rig.draw_inputs(Family.NORMAL)
        rig.poison_outputs()
        session.run(rig, 2)
        seconds, _ = session.timed(rig, 2, rig.touch_inputs)
        slowest = max(1e6 * seconds / 2, *self._quiet_us.values())
        calls = self._watch.schedule.calls(slowest)
        every = 1 if self._page else 4
        audit = Audit(rig, self.arithmetic, calls, every, findings)
        result = race(self._watch, session, self._baselines, slowest, audit)
        findings.passed("values while timed", f"{audit.looked} outputs of timed windows within the gate")
        if self._page:
            self._require_undisturbed(result, findings)
        self._require_above_floor(result, findings)
        return result

    def _require_undisturbed(self, result: Race, findings: Findings) -> None:
        for name, samples in result.baselines_us.items():
            while_racing = sorted(samples)[len(samples) // 2]
            if while_racing > (1 + QUIET_TOLERANCE) * self._quiet_us[name] + 1.0:
                raise findings.failed(
                    "baseline undisturbed",
                    Outcome.CHEATED,
                    f"{name} took {while_racing:.1f} us beside this guest, {self._quiet_us[name]:.1f} us before it",
                )
        findings.passed("baseline undisturbed", "as fast beside the guest as before any existed, within 10%")

    def _require_above_floor(self, result: Race, findings: Findings) -> None:
        median = sorted(result.candidate_us)[len(result.candidate_us) // 2]
        if median < self._floor_us:
            raise findings.failed(
                "byte floor",
                Outcome.CHEATED,
                f"{median:.2f} us a call, yet moving the inputs and outputs alone takes {self._floor_us:.2f} us",
            )
        findings.passed("byte floor", f"{median:.1f} us is above {self._floor_us:.1f} us")

    def score(self, timing: Timing) -> float:
        """Returns the roofline fraction: bound over measured."""
        return self.target().bound_us / timing.median_us


def _arithmetics(machine: Machine, arithmetic: Arithmetic) -> tuple[Arithmetic, ...]:
    # A CPU has no TF32, and its half-precision products can take seconds: only what is asked for is measured there.
    return tuple(Arithmetic) if machine.device_type == "cuda" else (arithmetic,)
