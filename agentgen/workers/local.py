"""A judge on this machine: started as a program, spoken to in records, never imported. While it works on the device it
has the turn there (`turns`), and at no other time: several judges may be open at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from agentgen.errors import DeviceLost, JudgeDied, MachineFailure
from agentgen.records.admission import Admission
from agentgen.records.candidate import Candidate
from agentgen.records.machine import Ceilings, Machine, Target
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Effort, Isolation
from agentgen.records.trial import Depth, Trial
from agentgen.workers.devices import require_device
from agentgen.workers.programs import JudgeProgram, Programs, no_stage
from agentgen.workers.turns import turn

OPEN_S = 600.0
"""The compiled baselines of `--effort full` are built meanwhile."""
EVALUATE_S = 1800.0
ADMIT_S = 300.0
WAIT = "wait"
"""What `on_stage` is told before the first stage where the device is somebody else's for now. It counts in no time."""
OPEN = "open the judge"
"""What it is told as the judge's program starts, looks at the device and times the baselines: seconds to minutes."""


class LocalJudge:
    """The judge of one problem on one device of this machine. Starts with the first use; `close` leaves no process."""

    def __init__(
        self,
        problem: Problem,
        device: str,
        arithmetic: Arithmetic,
        effort: Effort,
        isolation: Isolation = Isolation.JAIL,
        programs: Programs | None = None,
    ) -> None:
        """Takes what is to be judged where; `programs`: where its program comes from, shared with other judges of the
        device, one after the other, so that the next one's is got ready meanwhile."""
        self._programs = programs
        self._problem = problem
        self._device = device
        self._arithmetic = arithmetic
        self._effort = effort
        self._isolation = isolation
        self._program: JudgeProgram | None = None
        self._target: Target | None = None
        self._stopped = False

    def __enter__(self) -> LocalJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def target(self, on_stage: Callable[[str], None] = no_stage) -> Target:
        """Returns what the judge found out about the problem on this device; `on_stage` is told `WAIT` and `OPEN` only.

        Raises:
            DeviceNotFound: the device is not on this machine.
            ReferenceInvalid: the problem's reference does not run.
            JudgeDied: the judge ended without an answer.
        """
        self._opened(on_stage)
        assert self._target is not None
        return self._target

    def evaluate(
        self,
        candidate: Candidate,
        on_stage: Callable[[str], None] = no_stage,
        *,
        timing: bool = True,
        depth: Depth = Depth.JUDGE,
        then: Candidate | None = None,
    ) -> Trial:
        """Returns the trial of one candidate; calls `on_stage` with the name of each stage as it starts, before them
        perhaps with `WAIT` and `OPEN`. The candidate that comes next may be built meanwhile."""
        message = {
            "do": "evaluate",
            "candidate": candidate.model_dump(mode="json"),
            "timing": timing,
            "depth": depth.value,
            "then": then.model_dump(mode="json") if then else None,
        }
        program = self._opened(on_stage)
        with turn(self._device, lambda: on_stage(WAIT)):
            try:
                return Trial.model_validate(program.ask(message, EVALUATE_S, on_stage)["trial"])
            except MachineFailure:
                self.close()  # in this turn: guests may be at work. The next evaluation gets a fresh judge
                raise

    def stop(self) -> None:
        """Ends the call under way with JudgeDied, and each later one. For another thread than the one that calls."""
        self._stopped = True
        if self._programs:
            self._programs.hang_up()
        if program := self._program:
            program.hang_up()

    def close(self) -> None:
        """Ends the judge, its zygotes and its guests."""
        if self._program:
            self._program.close()
            self._program = None

    def _opened(self, on_stage: Callable[[str], None]) -> JudgeProgram:
        if self._program is None:
            require_device(self._device)
            with turn(self._device, lambda: on_stage(WAIT)):
                on_stage(OPEN)
                return self._open()
        return self._program

    def _open(self) -> JudgeProgram:
        self._program = self._programs.take() if self._programs else JudgeProgram(self._device)
        if self._stopped:  # looked at only now, so that either this or `stop` sees the other
            self.close()
            raise JudgeDied("the judge was stopped")
        message = {
            "do": "open",
            "problem": self._problem.model_dump(mode="json"),
            "arithmetic": self._arithmetic.value,
            "effort": self._effort.value,
            "isolation": self._isolation.value,
        }
        try:
            self._target = Target.model_validate(self._program.ask(message, OPEN_S)["target"])
        except BaseException:
            self.close()
            raise
        if self._programs:
            self._programs.prepare()
        return self._program


class Inspector:
    """Looks whether problems can be judged on a device of this machine. One program for all of them, a new one after
    one that broke."""

    def __init__(self, device: str) -> None:
        require_device(device)
        self._device = device
        self._program: JudgeProgram | None = None

    def __enter__(self) -> Inspector:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def admit(self, problem: Problem, arithmetic: Arithmetic) -> Admission:
        """Returns what was found. A reference that takes the program down with it is refused for that."""
        with turn(self._device):
            start = time.monotonic()
            try:
                return self._admission(problem, arithmetic)
            except (JudgeDied, DeviceLost) as error:
                spent = time.monotonic() - start
                return Admission(
                    problem=problem.name,
                    arithmetic=arithmetic,
                    device=self._device,
                    reasons=(f"looking at it failed after {spent:.0f} s: {error}",),
                    seconds=spent,
                )

    def look(self, problem: Problem, arithmetic: Arithmetic) -> Admission:
        """Returns what was found.

        Raises:
            MachineFailure: the device was lost, or the program that looked died; perhaps not by the reference.
        """
        with turn(self._device):
            return self._admission(problem, arithmetic)

    def _admission(self, problem: Problem, arithmetic: Arithmetic) -> Admission:
        self._program = self._program or JudgeProgram(self._device)
        message = {"do": "admit", "problem": problem.model_dump(mode="json"), "arithmetic": arithmetic.value}
        try:
            return Admission.model_validate(self._program.ask(message, ADMIT_S)["admission"])
        except (JudgeDied, DeviceLost):
            self._close()
            raise

    def _close(self) -> None:
        if self._program:
            self._program.close()
            self._program = None


def describe() -> Mapping[str, str]:
    """Returns what a judge program sees of torch, triton, CUDA and the compilers."""
    with contextlib.closing(JudgeProgram("cpu")) as program:
        return program.ask({"do": "describe"}, 120.0)["facts"]


def explain() -> Mapping[str, str]:
    """Returns every check of the judge by name, with what it catches and what not."""
    with contextlib.closing(JudgeProgram("cpu")) as program:
        return program.ask({"do": "explain"}, 120.0)["checks"]


def calibrate(device: str) -> tuple[Machine, Ceilings]:
    """Measures the ceilings of `device`."""
    require_device(device)
    with turn(device), contextlib.closing(JudgeProgram(device)) as program:
        answer = program.ask({"do": "calibrate"}, 300.0)
    return Machine.model_validate(answer["machine"]), Ceilings.model_validate(answer["ceilings"])
