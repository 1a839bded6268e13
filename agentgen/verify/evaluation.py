"""One candidate's way: screen, build, check, audit, time, score. Each stage ends in a finding or in a rejection; a
rejection is a value, and becomes the trial's outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from agentgen.records.candidate import Candidate, Language
from agentgen.records.trial import BuildReport, Check, Clock, Depth, Neighbour, Outcome, Speedup, Stage, Timing, Trial
from agentgen.verify.checks.certify import certify, second_measurement
from agentgen.verify.checks.screens import screen
from agentgen.verify.checks.throttling import unthrottled, watching
from agentgen.verify.checks.tripwires import instruments_agree
from agentgen.verify.claims import shown
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.instrumented import Instrumented, as_timed, audit
from agentgen.verify.judge import Judge
from agentgen.verify.numerics import loosest
from agentgen.verify.room import require_alone, require_room
from agentgen.verify.session import Session
from agentgen.verify.timing import SHORT_US, Race, summarise

_LOG_CHARACTERS = 4000
_TRACEBACK_CHARACTERS = 6000
"""The cause stands first in it, and a guest sends no more than this."""
OnStage = Callable[[Stage], None]


def evaluate(
    judge: Judge,
    candidate: Candidate,
    on_stage: OnStage,
    *,
    timing: bool,
    depth: Depth = Depth.JUDGE,
    then: Candidate | None = None,
) -> Trial:
    """Returns the trial of one candidate. Only a failing machine raises.

    Args:
        judge: Of the candidate's problem.
        candidate: What to evaluate.
        on_stage: Told the name of each stage as it begins.
        timing: Whether to time what passed.
        depth: How far to go.
        then: The candidate that comes next, if that is known: it may be built meanwhile.
    """
    evaluation = Evaluation(judge, candidate, on_stage, depth, then)
    outcome, reasons = Outcome.PASSED, ()
    try:
        evaluation.run(timing=timing)
    except Rejected as rejected:
        outcome, reasons = rejected.outcome, rejected.reasons
        if outcome is Outcome.OUT_OF_MEMORY and "CUDA" in reasons[0]:  # not for want of the host's memory
            evaluation.require_alone()
        judge.guests.spare.begin()  # it fell early: its guests take 0.08 s to end, meanwhile
    except torch.OutOfMemoryError as error:
        return evaluation.starved(error)
    finally:
        evaluation.close()
    judge.guests.spare.settle()  # whoever has the device next finds it idle
    return evaluation.trial(outcome, reasons)  # now that the guest has ended: its log is complete


class Evaluation:
    """One candidate's way through the stages, and what was seen on it."""

    def __init__(
        self, judge: Judge, candidate: Candidate, on_stage: OnStage, depth: Depth, then: Candidate | None
    ) -> None:
        self._judge = judge
        self._candidate = candidate
        self._on_stage = on_stage
        self._depth = depth
        self._then = then
        self._findings = Findings()
        self._races: list[Race] = []
        self._sessions: list[Session] = []
        self._second: Session | None = None
        self._seconds: dict[Stage, float] = {}
        self._neighbours: tuple[Neighbour, ...] = ()
        self._seen = Instrumented(None, 0.0)

    def run(self, *, timing: bool) -> None:
        """Goes through the stages.

        Raises:
            Rejected: at the first stage that finds the candidate at fault.
        """
        judge, language = self._judge, self._candidate.language
        screen(self._findings, self._candidate, judge.problem.own_work)
        if language is not Language.TRITON or judge.device != "cpu":
            judge.build_neighbours()
        session = self._built_session()
        if language is Language.CUDA and judge.device == "cpu":
            raise Rejected(Outcome.NOT_RUN, _compiled_only(session.builds))
        with self._stage("check"):
            for rig in judge.rigs_of(self._candidate):
                if rig is judge.main and judge.device != "cpu":
                    self._begin_second()
                judge.check(session, self._candidate, rig, self._findings, timing=timing)
        with self._stage("state"):
            judge.probe(session, self._candidate, self._findings)
        if language is Language.TRITON and judge.device == "cpu":
            how = "skipped: checked by Triton's interpreter on small workloads; neither timed nor audited without a GPU"
            self._findings.note("audit", None, how)
            if self._depth is Depth.CERTIFY:
                self._certify(session, timing=False)
            return
        with self._stage("audit"):
            judge.guests.spare.settle()  # an instrumented window is timed as well
            second = self._begun_second()
            self._seen = audit(judge, second, self._candidate, self._findings)
            second.close()
        if timing:
            with self._stage("time"):
                self._time(session)
            first, wall = self._races[0], judge.device == "cpu"
            timed_us = first.median_us + (first.copy_us if wall else 0.0)
            self._seen = as_timed(self._seen, timed_us, self._audited_again, wall=wall)
            worked = self._seen.work, first.work
            instruments_agree(self._findings, self._seen.call_us, timed_us, wall=wall, worked=worked)
        with self._stage("general"):
            # How special a kernel is that is behind torch, or how it does in the long run, is nobody's question.
            ahead = timing and not self._races[0].lost
            if ahead or self._depth is Depth.CERTIFY:
                judge.call_on(session, self._candidate, self._findings, self._depth)
            self._neighbours = judge.neighbours(session, self._findings, timing=ahead)
        if self._depth is Depth.CERTIFY:
            self._certify(session, timing=timing)

    def starved(self, error: torch.OutOfMemoryError) -> Trial:
        """Returns the trial of a candidate beside which the judge had no memory left.

        Raises:
            DeviceLost: it has none without the candidate either, or others hold much of it.
        """
        self.close()
        self._judge.guests.spare.drop()
        require_room(self._judge, error)
        require_alone(self._judge)
        return self.trial(
            Outcome.OUT_OF_MEMORY,
            ("the judge's own work found no memory beside this candidate, and finds it without: it takes too much",),
        )

    def require_alone(self) -> None:
        """Ends the guests.

        Raises:
            DeviceLost: it was not the candidate alone that left no memory.
        """
        self.close()
        self._judge.guests.spare.drop()
        require_alone(self._judge)

    def trial(self, outcome: Outcome, reasons: tuple[str, ...]) -> Trial:
        """Returns the record."""
        passed = outcome is Outcome.PASSED
        timing, speedups = self._timing() if passed and self._races else (None, ())
        first = self._sessions[0] if self._sessions else None
        isolation = self._judge.guests.isolation
        kept = None if isolation.startswith("none") else True
        checks = [Check(name="sandbox", passed=kept, evidence=isolation), *self._findings.checks]
        if first and first.has_prepare:
            checks.append(Check(name="prepare", passed=None, evidence="defined: untimed work after weights change"))
        return Trial(
            candidate=self._candidate.id,
            problem=self._judge.problem.name,
            arithmetic=self._judge.arithmetic,
            machine=self._judge.machine,
            depth=self._depth,
            outcome=outcome,
            reasons=tuple(map(shown, reasons)),
            checks=tuple(check.model_copy(update={"evidence": shown(check.evidence)}) for check in checks),
            accuracy=tuple(self._findings.accuracy),
            accuracy_class=loosest(row.reached for row in self._findings.accuracy if row.gated),
            build=first.builds if first else (),
            profile=self._seen.profile if passed else (),
            timing=timing,
            speedups=speedups,
            neighbours=self._neighbours if passed else (),
            roofline_fraction=self._judge.score(timing) if timing else None,
            seconds=self._seconds,
            log=_log(self._sessions),
        )

    def close(self) -> None:
        """Ends the guests."""
        with ExitStack() as stack:  # one that does not end leaves none of the others
            for session in self._sessions:
                stack.callback(session.close)

    def _audited_again(self) -> Instrumented:
        with self._stage("audit"):
            other = self._open_session()
            seen = audit(self._judge, other, self._candidate, Findings())  # its lines are there already
            other.close()
        return seen

    def _time(self, session: Session) -> None:
        self._races.append(self._judge.race(session, self._seen, self._findings))
        if self._judge.device != "cpu" and min(self._races[0].candidate_us) < SHORT_US:
            for _ in range(2):
                self._race_again()

    def _race_again(self) -> None:
        extra = self._open_session()
        extra.construct(self._judge.main)
        self._races.append(self._judge.race(extra, self._seen, self._findings))
        extra.close()

    def _certify(self, session: Session, *, timing: bool) -> None:
        judge, findings = self._judge, self._findings
        with self._stage("certify"):
            certify(judge, self._candidate, session, findings)
            if not timing:
                return
            session.close()  # from here on nobody but the new guest and the judge
            judge.guests.spare.drop()
            with watching(judge.device, known=2) as watched:
                self._race_again()
            second_measurement(findings, self._races[0], self._races[-1])
            unthrottled(findings, watched)

    def _timing(self) -> tuple[Timing, tuple[Speedup, ...]]:
        return summarise(self._races, Clock.WALL if self._judge.device == "cpu" else Clock.GATE)

    def _built_session(self) -> Session:
        with self._stage("start"):
            session = self._guest()
        with self._stage("build"):
            session.load(self._candidate, self._judge.arithmetic)
        if self._then:
            self._judge.guests.build_ahead(self._then, self._judge.arithmetic)
        return session

    def _begin_second(self) -> None:
        """Starts the guest that is to be instrumented, and the next candidate's first one: the 0.16 s that CUDA takes
        to begin pass while the first is checked."""
        self._second = self._guest()
        self._second.begin_load(self._candidate, self._judge.arithmetic)
        self._judge.guests.spare.begin()

    def _begun_second(self) -> Session:
        if self._second is None:
            return self._open_session()
        self._second.await_load()
        return self._second

    def _open_session(self) -> Session:
        session = self._guest()
        session.load(self._candidate, self._judge.arithmetic)
        return session

    def _guest(self) -> Session:
        guests, interpreted = self._judge.guests, self._judge.interprets(self._candidate)
        if self._sessions:
            session = guests.another(interpreted=interpreted)
        else:
            session = guests.first(self._candidate, interpreted=interpreted)
        self._sessions.append(session)
        return session

    @contextmanager
    def _stage(self, stage: Stage) -> Generator[None]:
        self._on_stage(stage)
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + time.perf_counter() - start


def _log(sessions: Sequence[Session]) -> str:
    """Returns the end of what the first guest wrote, and the end of the traceback of the one that failed."""
    texts = [sessions[0].guest.log[-_LOG_CHARACTERS:]] if sessions else []
    texts += [session.traceback[-_TRACEBACK_CHARACTERS:] for session in sessions]
    return "\n".join(shown(text) for text in texts if text)


def _compiled_only(builds: tuple[BuildReport, ...]) -> str:
    if not builds:
        return "no GPU here to run it; nothing was compiled while its module was loaded"
    kernels = ", ".join(f"{b.kernel} ({b.registers} registers, {b.spill_bytes} B spilled)" for b in builds)
    return f"compiled, not run: no GPU here. {kernels}"
