"""A judge on this machine: started as a program, spoken to in records, never imported."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentgen import errors
from agentgen.errors import AgentgenError, DeviceLost, DeviceNotFound, JudgeDied, MachineFailure, ProtocolError
from agentgen.records.admission import Admission
from agentgen.records.candidate import Candidate
from agentgen.records.machine import Ceilings, Machine, Target
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Effort, Isolation
from agentgen.records.trial import Depth, Trial
from agentgen.sandbox.process import BOTH_SIDES
from agentgen.sandbox.wire import Message, pair

OPEN_S = 600.0
"""The compiled baselines of `--effort full` are built meanwhile."""
EVALUATE_S = 1800.0
ADMIT_S = 300.0


def _no_stage(_: str) -> None:
    """Nobody watches."""


class LocalJudge:
    """The judge of one problem on one device of this machine. Starts with the first use; `close` leaves no process."""

    def __init__(
        self,
        problem: Problem,
        device: str,
        arithmetic: Arithmetic,
        effort: Effort,
        isolation: Isolation = Isolation.JAIL,
    ) -> None:
        self._problem = problem
        self._device = device
        self._arithmetic = arithmetic
        self._effort = effort
        self._isolation = isolation
        self._program: JudgeProgram | None = None
        self._target: Target | None = None

    def __enter__(self) -> LocalJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def target(self) -> Target:
        """Returns what the judge found out about the problem on this device.

        Raises:
            DeviceNotFound: the device is not on this machine.
            ReferenceInvalid: the problem's reference does not run.
            JudgeDied: the judge ended without an answer.
        """
        self._opened()
        assert self._target is not None
        return self._target

    def evaluate(
        self,
        candidate: Candidate,
        on_stage: Callable[[str], None] = _no_stage,
        *,
        timing: bool = True,
        depth: Depth = Depth.JUDGE,
        then: Candidate | None = None,
    ) -> Trial:
        """Returns the trial of one candidate; calls `on_stage` with the name of each stage as it starts. The candidate
        that comes next may be built meanwhile."""
        message = {
            "do": "evaluate",
            "candidate": candidate.model_dump(mode="json"),
            "timing": timing,
            "depth": depth.value,
            "then": then.model_dump(mode="json") if then else None,
        }
        try:
            return Trial.model_validate(self._opened().ask(message, EVALUATE_S, on_stage)["trial"])
        except MachineFailure:
            self.close()  # the next evaluation gets a fresh judge
            raise

    def close(self) -> None:
        """Ends the judge, its zygotes and its guests."""
        if self._program:
            self._program.close()
            self._program = None

    def _opened(self) -> JudgeProgram:
        if self._program is None:
            require_device(self._device)
            self._program = JudgeProgram(self._device)
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
        self._program = self._program or JudgeProgram(self._device)
        message = {"do": "admit", "problem": problem.model_dump(mode="json"), "arithmetic": arithmetic.value}
        start = time.monotonic()
        try:
            return Admission.model_validate(self._program.ask(message, ADMIT_S)["admission"])
        except (JudgeDied, DeviceLost) as error:
            self._close()
            return Admission(
                problem=problem.name,
                arithmetic=arithmetic,
                device=self._device,
                reasons=(f"looking at it failed after {time.monotonic() - start:.0f} s: {error}",),
                seconds=time.monotonic() - start,
            )

    def _close(self) -> None:
        if self._program:
            self._program.close()
            self._program = None


class JudgeProgram:
    """The running program and the socket to it."""

    def __init__(self, device: str) -> None:
        self._channel, theirs = pair()
        command = [sys.executable, "-m", "agentgen.verify.program"]
        command += ["--channel", str(theirs.fileno()), "--device", device]
        # A session of its own: Ctrl-C reaches the orchestrator alone, which then closes the judge in order.
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **BOTH_SIDES},
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
        )
        theirs.close()

    def ask(self, message: Mapping[str, Any], timeout_s: float, on_stage: Callable[[str], None] = _no_stage) -> Message:
        """Sends a command and returns the answer.

        Raises:
            AgentgenError: of the class that the judge names.
            JudgeDied: it ended, hangs, or sent nonsense.
        """
        try:
            self._channel.send(message)
            while True:
                answer, _ = self._channel.receive(timeout_s)
                if "stage" not in answer:
                    break
                on_stage(answer["stage"])
        except (ProtocolError, TimeoutError) as error:
            self._process.kill()
            raise JudgeDied(
                f"the judge ended while it did {message['do']}: {error}; see above for its words"
            ) from error
        if "error" in answer:
            kind = getattr(errors, answer["error"], JudgeDied)
            raise kind(answer["message"]) if issubclass(kind, AgentgenError) else JudgeDied(answer["message"])
        return answer

    def close(self) -> None:
        """Hangs up; a judge that does not end within 5 s is killed (its guests die with it)."""
        self._channel.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def devices() -> tuple[str, ...]:
    """Returns the devices of this machine, GPUs first, as far as can be seen without torch."""
    gpus = sorted(int(path.name.removeprefix("nvidia")) for path in Path("/dev").glob("nvidia[0-9]*"))
    return (*(f"cuda:{position}" for position, _ in enumerate(gpus)), "cpu")


def require_device(device: str) -> None:
    """Raises DeviceNotFound if `device` is not on this machine."""
    if device not in devices():
        raise DeviceNotFound(f"no {device} on this machine, which has {', '.join(devices())}; pass --device")


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
    with contextlib.closing(JudgeProgram(device)) as program:
        answer = program.ask({"do": "calibrate"}, 300.0)
    return Machine.model_validate(answer["machine"]), Ceilings.model_validate(answer["ceilings"])
