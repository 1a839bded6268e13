"""The judge of one problem on one device: what it holds between candidates, and the stages of `evaluation`."""

from __future__ import annotations

from collections.abc import Mapping

from agentgen.errors import DeviceLost
from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Ceilings, Machine, Target
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Effort, Isolation
from agentgen.records.trial import Depth, Neighbour, Timing
from agentgen.sandbox.process import ProcessSandbox
from agentgen.sandbox.protocol import Sandbox
from agentgen.verify import ceilings, instrumented, roofline
from agentgen.verify import machine as machines
from agentgen.verify.architecture import architecture
from agentgen.verify.baselines import Call, baselines
from agentgen.verify.checks import chance, neighbours, state, tripwires
from agentgen.verify.checks.audit import Audit
from agentgen.verify.checks.values import check_workload
from agentgen.verify.clock import OwnGate
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings
from agentgen.verify.guests import Guests
from agentgen.verify.inputs import described
from agentgen.verify.instrumented import Instrumented
from agentgen.verify.repeats import Repeats
from agentgen.verify.rig import Rig, build_rigs
from agentgen.verify.session import Session
from agentgen.verify.stopwatch import Stopwatch
from agentgen.verify.timing import STRANGE, Race, race

LOOK_EVERY = 4
"""Of so many timed windows of a CPU, one is looked at: an oracle takes as long as the window. At a neighbour, on any
device, one of all: it was checked a moment ago, and its time is no claim."""
MOSTLY_CALLS_S = 10e-3
"""Of a CPU's window of two calls at a neighbour that is shorter, a part worth knowing may be the command itself."""
MOSTLY_CALLS_GATED_S = 1e-3
"""Of a GPU's at a neighbour, whose gate takes 0.05 ms: two calls of 16 us made windows of 1 ms instead of 3."""
INTERPRETED = (Family.NORMAL, Family.SHIFTED, Family.OUTLIERS, Family.INTEGERS)
"""Triton's interpreter takes 0.1 s for what a GPU does in microseconds: four families on the small workloads."""


class Judge:
    """Holds the reference, the inputs and the clock."""

    def __init__(
        self,
        problem: Problem,
        device: str,
        arithmetic: Arithmetic,
        effort: Effort,
        isolation: Isolation = Isolation.JAIL,
        ahead: Sandbox | None = None,
    ) -> None:
        """Builds references and rigs, measures ceilings and quiet baselines, and starts the guests' zygote beside that,
        unless a sandbox for the device was started ahead.

        Raises:
            ReferenceInvalid: the problem does not run.
            MachineFailure: the device or the sandbox does not.
        """
        self.problem = problem
        self.device = device
        self.machine: Machine = machines.describe(device)
        self.arithmetic = arithmetic.on(self.machine.device_type)
        self._arch = architecture(device)
        if device != "cpu" and self._arch is None:
            raise DeviceLost(f"the driver knows no {device}, though torch does: it cannot be timed without its gate")
        sandbox = ahead or ProcessSandbox(device, self._arch, isolation=isolation)
        self.guests = Guests(sandbox, self._arch, isolation)
        self._near: tuple[list[neighbours.Near], list[str]] | None = None
        cache = self.machine.last_level_cache_bytes
        self._rigs = build_rigs(problem, device, cache, self.arithmetic)
        self._gate = OwnGate(self._arch) if self._arch else None  # after the first tensor: it needs a context
        self.main = next(iter(self._rigs.values()))
        if device == "cpu":
            self.guests.wait_until_warm()  # before it is measured: the zygote imports torch on a core of its own
        self._ceilings: Ceilings = ceilings.measure(device, _arithmetics(self.machine, self.arithmetic))
        self._baselines: Mapping[str, Call] = baselines(self.main.reference, self.arithmetic, effort)
        self._work = roofline.work_of(
            self.main.reference, device, problem.flops if self._is_whole() and device != "cpu" else None
        )
        self.main.draw_weights()
        self.main.draw_inputs(Family.NORMAL)
        self._watch = self.stopwatch(self.main)
        self._repeats = Repeats(self.main, self.arithmetic, LOOK_EVERY)
        self._quiet_us = self._watch.quiet_us(self._baselines)
        self.guests.wait_until_warm()

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

    def stopwatch(self, rig: Rig, *, near: bool = False) -> Stopwatch:
        """Returns a stopwatch for a rig, by the judge's own gate on a GPU."""
        return Stopwatch(rig, self._gate, near=near)

    def interprets(self, candidate: Candidate) -> bool:
        """Whether Triton's interpreter stands for the GPU that is not here."""
        return candidate.language is Language.TRITON and self.device == "cpu"

    def shared_bytes(self) -> int:
        """Returns the size of all memory that guests may see."""
        near = [one.rig for one in self._near[0]] if self._near else []
        return sum(rig.region.nbytes + rig.weights.nbytes for rig in (*self._rigs.values(), *near))

    def close(self) -> None:
        """Ends all guests and gives the memory back."""
        self.guests.close()

    def check(self, session: Session, candidate: Candidate, rig: Rig, findings: Findings, *, timing: bool) -> None:
        """Checks one workload. The families that timed windows of `main` look at are left to them there, if they were
        right at the small workloads."""
        families = INTERPRETED if self.interprets(candidate) else tuple(Family)
        later = STRANGE if timing and rig is self.main and rig is not self.smallest else ()
        now = [family for family in families if family not in later]
        check_workload(session, rig, self.gates(candidate), now, findings)

    def rigs_of(self, candidate: Candidate) -> list[Rig]:
        """Returns the workloads to check at, small ones first: they find most mistakes in a fraction of the time.
        `main` is too slow for the interpreter, unless nothing else is there."""
        rigs = list(reversed(self._rigs.values()))
        return rigs[:-1] or rigs if self.interprets(candidate) else rigs

    def probe(self, session: Session, candidate: Candidate, findings: Findings) -> None:
        """Probes what the candidate may remember, share, assume or leave to chance."""
        small, arithmetic = self.smallest, self.gates(candidate)
        state.global_state(findings, session, small)
        later = state.HELD if self.interprets(candidate) else state.LATER
        state.own_outputs(findings, session, small, arithmetic, later)
        state.one_element(findings, session, small, arithmetic)
        state.new_weights(findings, session, small, arithmetic)
        chance.same_answer(findings, session, small if self.interprets(candidate) else self.main, arithmetic)
        if self.interprets(candidate):
            self.habits(session, candidate, findings)

    def call_on(self, session: Session, candidate: Candidate, findings: Findings, depth: Depth) -> None:
        """Has a GPU's candidate that is worth it do the same for longer: what is wrong once in 400 calls."""
        if self.device != "cpu":
            # Guests that were audited or timed since have had the reference's weights drawn anew.
            session.set_weights(self.main)
            chance.same_answer(findings, session, self.main, self.gates(candidate), chance.SECONDS[depth])

    def habits(self, session: Session, candidate: Candidate, findings: Findings) -> None:
        """What a candidate may answer with a crash and still be accepted: the last that its guest is asked."""
        small = self.smallest
        state.strided_inputs(findings, session, small, self.gates(candidate), self.problem.strided_inputs)
        if session.alive():
            state.special_values(findings, session, small, self.problem.special_values)

    @property
    def smallest(self) -> Rig:
        """The workload with the fewest bytes."""
        return min(self._rigs.values(), key=lambda rig: sum(rig.reference.nbytes))

    def gates(self, candidate: Candidate) -> Arithmetic:
        """What the interpreter runs is meant for a GPU: there the problem's arithmetic is what it says."""
        gpu = self.problem.arithmetic
        return gpu if self.interprets(candidate) and gpu.on("cpu") is self.arithmetic else self.arithmetic

    @property
    def quickest_us(self) -> float:
        """Of a call of the fastest baseline, before any guest existed."""
        return min(self._quiet_us.values())

    @property
    def copy_bytes_per_s(self) -> float:
        """Measured, bytes read plus written."""
        return self._ceilings.copy_bytes_per_s

    def race(self, session: Session, seen: Instrumented, findings: Findings) -> Race:
        """Races a warm guest against the baselines at `main`, and looks at whose work it was then."""
        # A fresh guest may compile at its first call: compilers are no processes that work while it is timed.
        session.set_weights(self.main)
        session.run(self.main, 2)
        before = session.kin()
        for again in (False, True):
            result = self.race_at(session, self.main, self._watch, self._baselines, self._quiet_us, findings)
            if again or self.device == "cpu" or not tripwires.disturbed(result.baselines_us, self._quiet_us):
                break
        tripwires.alone(findings, before, session.kin(), sum(window.seconds for window in result.windows))
        if self.device == "cpu":
            tripwires.stands_still(findings, session.guest.stopped())
            instrumented.whose_time(self, session, seen, result, findings)
        shared = self.device == "cpu"
        tripwires.undisturbed(findings, result.baselines_us, self._quiet_us, shared=shared, again=again)
        return result

    def race_at(
        self,
        session: Session,
        rig: Rig,
        watch: Stopwatch,
        raced: Mapping[str, Call],
        quiet_us: Mapping[str, float],
        findings: Findings,
    ) -> Race:
        """Races a guest that was checked at a rig against baselines there."""
        rig.draw_weights()
        session.set_weights(rig)
        rig.draw_inputs(Family.NORMAL)
        rig.poison_outputs()
        session.run(rig, 2)
        main, gated = rig is self.main, self._gate is not None
        every = watch.schedule.pairs if not main else 1 if gated else LOOK_EVERY
        calls, call_us = 2, 0.0
        for _ in range(2):
            looking = Audit(rig, self.arithmetic, calls, every, findings, wholly=main)
            if main and calls <= rig.sets:
                # Every output is written once: what a stream does that nobody waits for is missing, and no later call
                # of the window has made it good. And who does nothing here would be given 20,000 calls a window.
                looking.strange = (Family.NORMAL,) * calls
            first = session.timed(rig, calls, looking)
            if main:
                looking.judge()
            call_us = 1e6 * first.seconds / calls
            calls = watch.calls(call_us)
            # At a CPU's main, half a window: what two calls take once in three is many times as long as it will be.
            told_s = MOSTLY_CALLS_GATED_S if gated else 0.5 * watch.schedule.window_s if main else MOSTLY_CALLS_S
            if first.seconds > told_s and not (main and gated):
                break
        around_us = 0.0 if gated else tripwires.COMMAND_US
        for again in (False, True):
            audit = Audit(rig, self.arithmetic, calls, every, findings, wholly=main)
            result = race(watch, session, raced, quiet_us, call_us, audit, strange=main)
            lengths = [window.seconds for window in result.windows]
            tails = [window.tail_s for window in result.windows]
            gross = [1e6 * length for length in lengths]
            guest_us = [1e6 * (window.claim.seconds or 0.0) for window in result.windows]
            if again or not (tripwires.held_up(guest_us, gross, around_us) or tripwires.ran_over(tails, lengths)):
                break
        tripwires.clocks_agree(findings, guest_us, gross, around_us, again=again)
        tripwires.ends_with_window(findings, tails, lengths, again=again)
        tripwires.above_floor(findings, result.median_us, self._floor_us(rig), min(quiet_us.values()))
        # A GPU's instruments see one round, and their time must agree; at a neighbour speed is no claim.
        if main and not gated and calls > rig.sets:
            self._repeats.race(session, result, findings)
        return result

    def build_neighbours(self) -> None:
        """Builds the neighbouring shapes, once, while no guest is there to take memory or time from them."""
        if self._near is None:
            self.guests.spare.drop()  # that of the next candidate, after one that fell at the screen
            cache = self.machine.last_level_cache_bytes
            self._near = neighbours.build(
                self.problem, self.device, cache, self.arithmetic, lambda rig: self.stopwatch(rig, near=True)
            )

    def neighbours(self, session: Session, findings: Findings, *, timing: bool) -> tuple[Neighbour, ...]:
        """Checks and times a guest at the problem's neighbouring shapes."""
        self.build_neighbours()
        assert self._near

        def race_at(near: neighbours.Near, local: Findings) -> Race:
            return self.race_at(session, near.rig, near.watch, near.raced, near.quiet_us, local)

        found: list[Neighbour] = []
        neighbours.neighbouring_shapes(
            findings, session, self._near, self.arithmetic, race_at if timing else None, findings, found
        )
        return tuple(found)

    def _floor_us(self, rig: Rig) -> float:
        return roofline.byte_floor_us(
            rig.reference,
            self.machine.last_level_cache_bytes,
            ceilings.bandwidth_limit(self.machine, self._ceilings),
        )

    def score(self, timing: Timing) -> float:
        """Returns the roofline fraction: bound over measured."""
        return self.target().bound_us / timing.median_us


def _arithmetics(machine: Machine, arithmetic: Arithmetic) -> tuple[Arithmetic, ...]:
    # A CPU has no TF32, and its half-precision products can take seconds: only what is asked for is measured there.
    return tuple(Arithmetic) if machine.device_type == "cuda" else (arithmetic,)
