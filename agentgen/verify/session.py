"""A session: the judge's talk with one guest. Turns what goes wrong there into a rejection with an outcome."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import ValidationError

from agentgen.errors import PeerClosed, ProtocolError, SandboxUnavailable
from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import BuildReport, Outcome
from agentgen.sandbox.kin import Kin
from agentgen.sandbox.protocol import Guest
from agentgen.verify import weights
from agentgen.verify.checks.native import NativeLibrary, mapped_files, own_libraries
from agentgen.verify.claims import Claim
from agentgen.verify.clock import OPEN_ANYWAY_S, Page, let_come_back
from agentgen.verify.findings import Rejected
from agentgen.verify.reference import PUBLIC_SEED
from agentgen.verify.rig import Rig
from agentgen.verify.shared import Region
from agentgen.verify.windows import Timed, Watcher, message_of, model_of

BUILD_S = 180.0
"""load_inline with torch's headers takes 35-50 s on an H200."""
FIRST_CALL_S = 90.0
"""Triton compiles and autotunes at the first call."""
CALLS_S = 60.0
SPARE = 0.25
"""Share of a GPU's memory that the judge may keep for its next oracle; what is beyond is the guest's to use."""


class Session:
    """One guest, one candidate, any number of workloads."""

    def __init__(self, guest: Guest, page: Page | None) -> None:
        """Takes over a guest fresh from the sandbox and, on a GPU, the words of its gate."""
        self.guest = guest
        self.page = page
        self.builds: tuple[BuildReport, ...] = ()
        self.traceback = ""  # of the failure that the guest told of last
        self.has_prepare = False
        self.sampled_by_kernel = guest.samples() is not None  # not by the guest itself
        try:
            self.mapped = mapped_files(guest.pid)
            """What the guest could execute before it knew the candidate."""
        except OSError as error:
            raise SandboxUnavailable(f"a fresh guest was gone before it was used: {error}") from error
        self._assignments: dict[str, dict[str, int]] = {}
        self._opened = False

    def begin_open(self) -> None:
        """Has a GPU's guest make its context ahead of a candidate; nothing else may be asked before `await_open`."""
        self._post({"do": "open"}, (self.page.fd,) if self.page else ())

    def await_open(self) -> None:
        """Waits until it has."""
        self._answer(CALLS_S, "open")
        self._opened = True

    def load(self, candidate: Candidate, arithmetic: Arithmetic) -> None:
        """Runs the candidate's module text in the guest."""
        self.begin_load(candidate, arithmetic)
        self.await_load()

    def begin_load(self, candidate: Candidate, arithmetic: Arithmetic) -> None:
        """Has the guest begin with that; nothing else may be asked of it before `await_load`."""
        message = {"do": "load", "source": candidate.source, "arithmetic": arithmetic.value}
        self._post(message, (self.page.fd,) if self.page and not self._opened else ())

    def await_load(self) -> None:
        """Waits until it has."""
        self._answer(BUILD_S, "load")

    def construct(self, rig: Rig, *, twin: bool = False) -> None:
        """Builds `ModelNew` for the rig's workload, pairs its state, shares the rig's memory; `twin`: a second one
        beside it."""
        name = rig.reference.workload
        message = {"do": "construct", "workload": model_of(name, twin), "seed": PUBLIC_SEED}
        claim = self._command({**message, "init_args": rig.reference.init_args}, (), BUILD_S)
        self.has_prepare = claim.prepare
        try:
            paired = weights.pair(claim.state, rig.initial_state)
        except weights.Unpaired as error:
            raise Rejected(Outcome.BUILD_FAILED, f"workload {name}: {error}") from error
        self._assignments[name] = {own: rig.weight_names.index(theirs) for own, theirs in paired.items()}
        for region in (rig.region, rig.weights):
            self.share(region)

    def share(self, region: Region) -> None:
        """Has the guest map a region."""
        self._command(region.message(), (region.fd,), CALLS_S)

    def set_weights(self, rig: Rig, *, load: bool = False, twin: bool = False) -> None:
        """Has the guest take over the weights that lie in the rig's region, in place or by `load_state_dict`, in the
        model or its twin."""
        name = rig.reference.workload
        assign = self._assignments[name]
        message = {"do": "weights", "workload": model_of(name, twin), "region": rig.weights.name, "load": load}
        self._command({**message, "assign": assign}, (), FIRST_CALL_S)

    def poison(self, rig: Rig, byte: int) -> None:
        """Has the guest poison the memory that the candidate will allocate."""
        sizes = [y.nbytes for y in rig.outputs[0]]
        self._command({"do": "poison", "byte": byte, "sizes": sizes}, (), CALLS_S)

    def run(
        self, rig: Rig, calls: int, *, rows: Sequence[Any] | None = None, record: bool = False, hold: bool = False
    ) -> Claim:
        """Runs a window with no clock of ours on it: the first call of a workload, or an instrumented one.

        Args:
            rig: The workload; `calls`: how many.
            rows: Arguments to rotate over; by default the rig's sets.
            record: With the guest's instruments on.
            hold: The guest keeps the outputs as they are returned, until `collect`.
        """
        message = {**message_of(rig, calls, 0), "record": record, "hold": hold, "sample": not self.sampled_by_kernel}
        self.guest.forget_samples()
        claim = self._command({**message, "inputs": rows} if rows else message, (), FIRST_CALL_S)
        seen = self.guest.samples() if record else None
        return claim if seen is None else claim.model_copy(update={"samples": dict(seen)})

    def guard(self, side: str, fill: int) -> None:
        """Has the guest lay what it allocates between walls: before `load`, or it is too late."""
        self._command({"do": "guard", "side": side, "fill": fill}, (), CALLS_S)

    def guarded(self) -> int:
        """Returns how many blocks lay between walls; a guest that wrote to the filling of one ends here."""
        return self._command({"do": "guarded"}, (), CALLS_S).guarded

    def collect(self) -> None:
        """Has the guest copy what it holds into the output buffers it belongs to."""
        self._command({"do": "collect"}, (), CALLS_S)

    def timed(self, rig: Rig, calls: int, watcher: Watcher) -> Timed:
        """Runs the same window under the judge's clock."""
        if self.page is not None:
            return self._gated(rig, calls, self.page, watcher)
        self._command({**message_of(rig, calls, 0), "arm": True, "sample": not self.sampled_by_kernel}, (), CALLS_S)
        # Between the two, and with the guest stopped: what is worked on before `go` has inputs that are gone by then.
        self.guest.pause()
        watcher.before()
        self.guest.forget_samples()  # from here on they are the window's
        self.guest.resume()
        start = time.perf_counter()
        self._command({"do": "go"}, (), CALLS_S)
        seconds = time.perf_counter() - start
        watcher.after()
        seen = self.guest.samples()
        claim = self._command({"do": "finish"}, (), CALLS_S)
        return Timed(seconds, 0.0, claim, claim.samples or {} if seen is None else seen)

    def _gated(self, rig: Rig, calls: int, page: Page, watcher: Watcher) -> Timed:
        shot = page.next_shot()
        self._post(message_of(rig, calls, shot), ())
        answered = False
        try:
            page.wait_here(shot, CALLS_S)
        except TimeoutError as error:
            self._answer(CALLS_S)  # a failure tells more than the missing gate
            raise Rejected(Outcome.TIMED_OUT, f"the guest never reached the gate: {error}") from error
        try:
            self._check(self.guest.answer(OPEN_ANYWAY_S))
            answered = True
        except TimeoutError:
            pass  # the model waits for the device inside forward
        except ProtocolError as error:
            raise self._gone(error) from error
        # When all is queued, not before: what did not wait for the gate has run by then, on inputs that are now gone.
        watcher.before()
        self._settle()
        let_come_back()
        if page.marked(shot):
            raise Rejected(Outcome.CHEATED, "the calls were marked as done before the gate was opened")
        try:
            seconds = page.open_and_time(shot, CALLS_S)
        except TimeoutError as error:
            if answered:
                self._command({"do": "finish"}, (), 5.0)
            else:
                self._answer(5.0)
            raise Rejected(Outcome.TIMED_OUT, f"{calls} calls did not end: {error}") from error
        # Before the guest is asked for anything: what is not there now came after the clock had stopped.
        watcher.after()
        self._settle()
        start = time.perf_counter()
        if not answered:
            self._answer(CALLS_S)
        claim = self._command({"do": "finish"}, (), CALLS_S)
        return Timed(seconds, time.perf_counter() - start, claim, {})

    def alive(self) -> bool:
        """Whether guest and device still answer."""
        try:
            self._command({"do": "finish"}, (), CALLS_S)
        except Rejected:
            return False
        return True

    def libraries(self) -> list[NativeLibrary]:
        """Returns the shared libraries that the candidate brought along."""
        try:
            found = own_libraries(self.guest.pid, self.mapped, self.guest.scratch)
        except OSError as error:
            raise Rejected(Outcome.CRASHED, f"the guest was gone before its libraries were seen: {error}") from error
        self._command({"do": "ping"}, (), CALLS_S)  # of one that had ended nothing is mapped
        return found

    def kin(self) -> Kin:
        """Returns what other processes the guest has."""
        try:
            return self.guest.kin()
        except OSError as error:
            raise Rejected(Outcome.CRASHED, f"the guest was gone before its processes were seen: {error}") from error

    def wake(self) -> None:
        """Lets a paused guest go on, and waits until it answers."""
        self.guest.resume()
        self._command({"do": "ping"}, (), CALLS_S)

    def close(self) -> None:
        """Ends the guest."""
        if self.page:
            self.page.release()  # a kernel that spins for up to 30 s may hold up the end of its process
        try:
            self.guest.kill()
        finally:
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
        except TimeoutError as error:
            raise Rejected(Outcome.TIMED_OUT, f"the guest does not read its commands: {error}") from error
        except ProtocolError as error:
            raise self._gone(error) from error

    def _settle(self) -> None:
        """Waits for what the judge queued: the guest must find it done, and its window must not share the GPU with it
        (seen: identical code 8% slower, and inputs that changed under its hands)."""
        if not self.page:
            return
        torch.cuda.synchronize()
        held = torch.cuda.memory_stats_as_nested_dict()  # flat, as for its parts alone, it takes 0.5 ms of Python
        idle = held["reserved_bytes"]["all"]["current"] - held["allocated_bytes"]["all"]["current"]
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
            wrong = f"the guest's answer makes no sense: {error.error_count()} errors"
            raise Rejected(Outcome.CRASHED, wrong) from error
        self.builds = tuple(claim.builds) or self.builds
        if claim.failure:
            self.traceback = claim.failure.traceback
            raise Rejected(claim.failure.outcome, claim.failure.message)
        return claim

    def _gone(self, error: Exception) -> Rejected:
        if not isinstance(error, PeerClosed):
            return Rejected(Outcome.CRASHED, f"the guest broke the protocol: {error}")
        status = self.guest.exit_status
        if status is None:
            return Rejected(Outcome.CRASHED, "the guest closed its socket")
        if status == -signal.SIGKILL and (allowed := self.guest.starved):
            return Rejected(Outcome.OUT_OF_MEMORY, f"the guest wanted more memory than it may have ({allowed})")
        if status < 0:
            return Rejected(Outcome.CRASHED, f"the guest was ended by {_signal_name(-status)}")
        return Rejected(Outcome.CRASHED, f"the guest ended by itself with status {status}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
