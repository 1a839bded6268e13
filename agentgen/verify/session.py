"""A session: the judge's talk with one guest. Turns what goes wrong there into a rejection with an outcome."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pydantic import ValidationError

from agentgen.errors import PeerClosed, ProtocolError
from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import BuildReport, Outcome
from agentgen.sandbox.protocol import Guest
from agentgen.verify import weights
from agentgen.verify.claims import Claim
from agentgen.verify.clock import OPEN_ANYWAY_S, Page
from agentgen.verify.reference import PUBLIC_SEED
from agentgen.verify.rig import Rig

BUILD_S = 180.0
"""load_inline with torch's headers takes 35-50 s on an H200."""
FIRST_CALL_S = 90.0
"""Triton compiles and autotunes at the first call."""
CALLS_S = 60.0
SPARE = 0.25
"""Share of a GPU's memory that the judge may keep for its next oracle; what is beyond is the guest's to use."""


class Rejected(Exception):
    """The candidate is at fault. Ends the evaluation; becomes the trial's outcome."""

    def __init__(self, outcome: Outcome, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.outcome = outcome
        self.reasons = reasons


class Session:
    """One guest, one candidate, any number of workloads."""

    def __init__(self, guest: Guest, page: Page | None) -> None:
        """Takes over a guest fresh from the sandbox and, on a GPU, the words of its gate."""
        self.guest = guest
        self.page = page
        self.builds: tuple[BuildReport, ...] = ()
        self.has_prepare = False
        self._assignments: dict[str, dict[str, int]] = {}

    def load(self, candidate: Candidate, arithmetic: Arithmetic) -> None:
        """Runs the candidate's module text in the guest."""
        message = {"do": "load", "source": candidate.source, "arithmetic": arithmetic.value}
        self._command(message, (self.page.fd,) if self.page else (), BUILD_S)

    def construct(self, rig: Rig) -> None:
        """Builds `ModelNew` for the rig's workload, pairs its state, shares the rig's memory."""
        name = rig.reference.workload
        message = {"do": "construct", "workload": name, "init_args": rig.reference.init_args, "seed": PUBLIC_SEED}
        claim = self._command(message, (), BUILD_S)
        self.has_prepare = claim.prepare
        try:
            paired = weights.pair(claim.state, rig.initial_state)
        except weights.Unpaired as error:
            raise Rejected(Outcome.BUILD_FAILED, f"workload {name}: {error}") from error
        self._assignments[name] = {own: rig.weight_names.index(theirs) for own, theirs in paired.items()}
        for region in (rig.region, rig.weights):
            self._command(region.message(), (region.fd,), CALLS_S)

    def set_weights(self, rig: Rig) -> None:
        """Has the guest take over the weights that lie in the rig's region."""
        name = rig.reference.workload
        assign = self._assignments[name]
        message = {"do": "weights", "workload": name, "region": rig.weights.name, "assign": assign}
        self._command(message, (), FIRST_CALL_S)

    def run(self, rig: Rig, calls: int, *, record: bool = False) -> Claim:
        """Runs a window with no clock of ours on it: the first call of a workload, or an instrumented one."""
        return self._command(_window(rig, calls, 0, record), (), FIRST_CALL_S)

    def timed(self, rig: Rig, calls: int, touch: Callable[[], None]) -> tuple[float, Claim]:
        """Runs the same window under the judge's clock.

        Args:
            rig: The workload.
            calls: How many.
            touch: Rewrites inputs: before the command on a CPU, while the gate spins on a GPU.

        Returns:
            Seconds by the judge, and the guest's claim with its own seconds.
        """
        if self.page is None:
            touch()
            start = time.perf_counter()
            claim = self._command(_window(rig, calls, 0, False), (), CALLS_S)
            return time.perf_counter() - start, claim
        return self._gated(rig, calls, self.page, touch)

    def _gated(self, rig: Rig, calls: int, page: Page, touch: Callable[[], None]) -> tuple[float, Claim]:
        shot = page.next_shot()
        self._post(_window(rig, calls, shot, False), ())
        answered = False
        try:
            page.wait_here(shot, CALLS_S)
        except TimeoutError as error:
            self._answer(CALLS_S)  # a failure tells more than the missing gate
            raise Rejected(Outcome.TIMED_OUT, f"the guest never reached the gate: {error}") from error
        touch()
        self._settle()
        try:
            self._check(self.guest.answer(OPEN_ANYWAY_S))
            answered = True
        except TimeoutError:
            pass  # the model waits for the device inside forward
        except ProtocolError as error:
            raise self._gone(error) from error
        try:
            seconds = page.open_and_time(shot, CALLS_S)
        except TimeoutError as error:
            self._command({"do": "finish"}, (), 5.0)
            raise Rejected(Outcome.TIMED_OUT, f"{calls} calls did not end within {CALLS_S:.0f} s") from error
        if not answered:
            self._answer(CALLS_S)
        return seconds, self._command({"do": "finish"}, (), CALLS_S)

    def wake(self) -> None:
        """Lets a paused guest go on, and waits until it answers."""
        self.guest.resume()
        self._command({"do": "ping"}, (), CALLS_S)

    def close(self) -> None:
        """Ends the guest."""
        self.guest.kill()
        if self.page:
            self.page.close()
            self.page = None

    def _command(self, message: Mapping[str, Any], fds: Sequence[int], timeout_s: float) -> Claim:
        self._post(message, fds)
        return self._answer(timeout_s, str(message["do"]))

    def _post(self, message: Mapping[str, Any], fds: Sequence[int]) -> None:
        self._settle()
        try:
            self.guest.post(message, fds)
        except (ProtocolError, TimeoutError) as error:
            raise self._gone(error) from error

    def _settle(self) -> None:
        """Waits for what the judge queued: the guest must find it done, and its window must not share the GPU with it
        (seen: identical code 8% slower, and inputs that changed under its hands)."""
        if not self.page:
            return
        torch.cuda.synchronize()
        idle = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        if idle > SPARE * torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory:
            torch.cuda.empty_cache()

    def _answer(self, timeout_s: float, what: str = "window") -> Claim:
        try:
            answer = self.guest.answer(timeout_s)
        except TimeoutError as error:
            raise Rejected(Outcome.TIMED_OUT, f"no answer to {what} within {timeout_s:.0f} s") from error
        except ProtocolError as error:
            raise self._gone(error) from error
        return self._check(answer)

    def _check(self, answer: Mapping[str, Any]) -> Claim:
        try:
            claim = Claim.model_validate(answer)
        except ValidationError as error:
            raise Rejected(
                Outcome.CRASHED, f"the guest's answer makes no sense: {error.error_count()} errors"
            ) from error
        if claim.builds:
            self.builds = tuple(claim.builds)
        if claim.failure:
            raise Rejected(claim.failure.outcome, claim.failure.message)
        return claim

    def _gone(self, error: Exception) -> Rejected:
        if not isinstance(error, PeerClosed):
            return Rejected(Outcome.CRASHED, f"the guest broke the protocol: {error}")
        status = self.guest.exit_status
        if status is not None and status < 0:
            name = signal.Signals(-status).name if -status in signal.valid_signals() else f"signal {-status}"
            return Rejected(Outcome.CRASHED, f"the guest was ended by {name}")
        return Rejected(Outcome.CRASHED, f"the guest ended by itself with status {status}")


def _window(rig: Rig, calls: int, shot: int, record: bool) -> dict[str, Any]:
    return {
        "do": "window",
        "workload": rig.reference.workload,
        "region": rig.region.name,
        "inputs": rig.input_rows,
        "outputs": rig.output_rows,
        "calls": calls,
        "shot": shot,
        "record": record,
    }
