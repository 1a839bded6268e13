"""Judges' programs: started here, spoken to in messages, and the next one got ready while one judges."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from agentgen import errors
from agentgen.errors import AgentgenError, JudgeDied, JudgeHangs, ProtocolError
from agentgen.records.run import Isolation
from agentgen.sandbox.process import BOTH_SIDES
from agentgen.sandbox.wire import Message, pair

PREPARE_S = 60.0
SPARE_CORES = 4
"""With fewer, importing torch would take turns with whoever queues the kernels of timed windows."""


def no_stage(_: str) -> None:
    """Nobody watches."""


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
        self._does = "nothing"

    def ask(self, message: Mapping[str, Any], timeout_s: float, on_stage: Callable[[str], None] = no_stage) -> Message:
        """Sends a command and returns the answer.

        Raises:
            AgentgenError: of the class that the judge names.
            JudgeDied: it ended, hangs, or sent nonsense.
        """
        self.begin(message)
        return self.answer(timeout_s, on_stage)

    def begin(self, message: Mapping[str, Any]) -> None:
        """Sends a command.

        Raises:
            JudgeDied: it has ended.
        """
        self._does = message["do"]
        with self._living():
            self._channel.send(message)

    def answer(self, timeout_s: float, on_stage: Callable[[str], None] = no_stage) -> Message:
        """Returns the answer to the command that was sent.

        Raises:
            AgentgenError, JudgeDied: as `ask`.
        """
        with self._living():
            while True:
                answer, _ = self._channel.receive(timeout_s)
                if "stage" not in answer:
                    break
                on_stage(answer["stage"])
        if "error" in answer:
            kind = getattr(errors, answer["error"], JudgeDied)
            raise kind(answer["message"]) if issubclass(kind, AgentgenError) else JudgeDied(answer["message"])
        return answer

    @contextmanager
    def _living(self) -> Generator[None]:
        try:
            yield
        except TimeoutError as error:
            self._process.kill()
            raise JudgeHangs(
                f"the judge was not done with {self._does} in time: {error}; see above for its words"
            ) from error
        except ProtocolError as error:
            self._process.kill()
            raise JudgeDied(f"the judge ended while it did {self._does}: {error}; see above for its words") from error

    def hang_up(self) -> None:
        """Ends a call under way in another thread, and the program."""
        self._channel.hang_up()

    def close(self) -> None:
        """Hangs up; a judge that does not end within 5 s is killed (its guests die with it)."""
        self._channel.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Programs:
    """The programs of a device's judges, one after the other. On a GPU the next one imports torch, and has the zygote
    of its guests do so, while one judges: 4 s of the 5 or 6 that opening a judge takes there. It makes no context yet.
    """

    def __init__(self, device: str, isolation: Isolation) -> None:
        """Takes the device, and what guests are to be kept in. Nothing is started yet."""
        self._device = device
        self._isolation = isolation
        self._next: JudgeProgram | None = None

    def take(self) -> JudgeProgram:
        """Returns a program to open a judge in, and to close: the one that was prepared, if it is well."""
        if program := self._next:
            try:
                program.answer(PREPARE_S)
                return program
            except AgentgenError:  # a judge that is opened says what is wrong
                program.close()
            finally:
                self._next = None
        return JudgeProgram(self._device)

    def prepare(self) -> None:
        """Starts the program of the next judge, where that disturbs nobody: a CPU is measured with all of its cores."""
        if self._next or not _has_room(self._device):
            return
        with suppress(JudgeDied, OSError):  # who takes it will see
            self._next = JudgeProgram(self._device)
            self._next.begin({"do": "prepare", "isolation": self._isolation.value})

    def hang_up(self) -> None:
        """Ends a wait for what is prepared, in another thread."""
        if program := self._next:
            program.hang_up()

    def close(self) -> None:
        """Ends a program that nobody has taken."""
        program, self._next = self._next, None
        if program:
            program.close()


def _has_room(device: str) -> bool:
    return device != "cpu" and len(os.sched_getaffinity(0)) >= SPARE_CORES
