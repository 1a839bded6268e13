"""The next candidate is built while this one is judged: its text is run in a guest that sees no GPU, and what the
compiler of `agentgen.jit` leaves in its cache there, the guest that is judged finds.

Nothing of what that guest says is believed, and its cache is its own candidate's, who could write the same in either
guest. It is of no use where kernels are compiled at their first call (Triton) or by a constructor; whatever goes wrong
shows where the candidate is built again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from agentgen.errors import MachineFailure, ProtocolError
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Isolation
from agentgen.sandbox.process import CACHE, ProcessSandbox
from agentgen.sandbox.protocol import Guest

LEFT_S = 20.0
"""To build in once the candidate's turn has come: it had a whole evaluation before."""
SPARE_CORES = 4
"""With fewer a compiler would take turns with whoever queues the kernels of timed windows."""


class Builder:
    """Builds one candidate at a time."""

    def __init__(self, arch: str, isolation: Isolation) -> None:
        """Takes the architecture to compile for, e.g. `sm_90a`."""
        self._arch = arch
        self._isolation = isolation
        self._sandbox: ProcessSandbox | None = None
        self._guest: Guest | None = None
        self._candidate = ""

    def begin(self, candidate: Candidate, arithmetic: Arithmetic) -> None:
        """Starts building, if there is anything to be built so early. At first only the guests' zygote starts: nobody
        waits for that."""
        self._end()
        if candidate.language is not Language.CUDA or len(os.sched_getaffinity(0)) < SPARE_CORES:
            return
        with contextlib.suppress(MachineFailure, ProtocolError, TimeoutError):
            if self._sandbox is None:
                self._sandbox = ProcessSandbox("cpu", self._arch, isolation=self._isolation)
                return
            self._guest, self._candidate = self._sandbox.start(candidate.id), candidate.id
            self._guest.post({"do": "load", "source": candidate.source, "arithmetic": arithmetic.value})

    def take(self, candidate: Candidate) -> Path | None:
        """Returns the cache of a candidate that was begun, if it is built soon; its guest has ended then."""
        if self._sandbox is None or self._guest is None or self._candidate != candidate.id:
            return None
        # Beside the guests' folders, not in one of its own: that of a judge that was killed stayed (seen on an H200).
        cache = self._sandbox.folder / f"built-{candidate.id}"
        try:
            self._guest.answer(LEFT_S)
            os.rename(self._guest.scratch / CACHE, cache)
        except (ProtocolError, TimeoutError, OSError):  # it does not build, or has built nothing
            return None
        finally:
            self._end()
        return cache

    def close(self) -> None:
        """Ends all, and leaves nothing."""
        self._end()
        if self._sandbox:
            self._sandbox.close()

    def _end(self) -> None:
        guest, self._guest = self._guest, None
        if guest:
            with contextlib.suppress(MachineFailure):
                guest.kill()
