"""Whose work is it, by processor time: samples of where a CPU's windows were spent, by the file that the code lies in.
They are the kernel's word where it allows that, else the guest's claim."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentgen.records.problem import OwnWork
from agentgen.records.trial import Outcome
from agentgen.sandbox.perf import PERIOD_NS
from agentgen.verify.checks.native import NativeLibrary, is_kept
from agentgen.verify.findings import NotGated, Rejected, check

MIN_SAMPLES = 30
BORROWED_LIMIT = 0.10
"""Share of the samples that torch and math libraries may have: allocating and dispatching it takes some."""
DEVIATIONS = 3.0
"""By how many of its standard deviations a count must be beyond its limit."""
MOVING_FACTOR, MOVING_LIMIT = 4.0, 0.40
"""What filling and copying by torch may add: so many times what the bytes take at the measured rate (a padding takes
two passes, a transposed copy is slow), and so much at the most."""

MIN_COPYING, COPYING = 20.0, 0.5
"""Samples of copying that must be due before it is decided whether there was any, and the part of them to be seen, by
three deviations: 15 trials of honest kernels on a busy machine had 0.95 to 1.35 of them."""

_C_LIBRARY = re.compile(r"(?:.*/)?libc[-.\d]*\.so[.\d]*")
_WAITING = re.compile(r"(?:.*/)?lib(?:gomp|omp|iomp5)(?:-[\da-f]+)?\.so[.\d]*")
"""OpenMP's runtime: nobody's work. Not counted at all, or threads that spin would hide what the others do."""
_NEUTRAL = re.compile(
    r"(?:.*/)?(?:lib(?:c|m|mvec|pthread|dl|rt|util|stdc\+\+|gcc_s|ffi)[-.\d]*\.so[.\d]*"
    r"|ld-linux[^/]*|libpython[^/]*|python3?[.\d]*|libtorch_python\.so|libc10\.so|libtriton\.so)"
    r"|.*/lib-dynload/[^/]*|\[vdso\]|\[vsyscall\]"
)
"""C's own library with its memcpy and expf, the interpreter, torch's bindings and its allocator."""


@dataclass(frozen=True)
class Shares:
    """Whose code ran, in samples of processor time."""

    total: int
    borrowed: int
    own: int
    where: str
    """The files that most of the borrowed time is in."""

    def beyond(self, limit: float) -> bool:
        """Whether more than a share was borrowed, chance apart."""
        expected = limit * self.total
        return self.borrowed > expected + DEVIATIONS * math.sqrt(expected * (1 - limit))

    def decided(self, limit: float) -> bool:
        """Whether more samples would only tell the same."""
        enough = self.total >= 2 * MIN_SAMPLES
        return enough and (self.borrowed <= limit * self.total or self.beyond(limit))

    def __str__(self) -> str:
        total = max(1, self.total)
        return (
            f"{self.borrowed / total:.0%} of {self.total} samples of processor time in torch's or other libraries"
            f"{f' ({self.where})' if self.where else ''}, {self.own / total:.0%} in the candidate's own"
        )


@dataclass(frozen=True)
class Work:
    """What some calls worked, in the kernel's samples of processor time: copies and waiting left out."""

    samples: int = 0
    calls: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.samples + other.samples, self.calls + other.calls)

    @property
    def us(self) -> float:
        """Of a call, on all processors together."""
        return 1e-3 * PERIOD_NS * self.samples / max(1, self.calls)

    def is_known(self) -> bool:
        """Whether there are enough samples to go by."""
        return self.samples >= MIN_SAMPLES


def work(samples: Mapping[str, int], calls: int) -> Work:
    """Returns the work of so many calls."""
    own = (n for name, n in samples.items() if not (_is(_C_LIBRARY, name) or _is(_WAITING, name)))
    return Work(sum(own), calls)


@check("own work: processor time")
def spends_time_in_own_code(seen: Shares, limit: float, policy: OwnWork) -> str | NotGated:
    """Catches work that runs in torch's or a math library's code, however it was reached: through ctypes, an
    address passed to C++, a recording mode that was left, a child process. Under `strict` they may have 10% of the
    processor time of a window, and more, up to 50%, by the bytes that torch filled or copied, which is free; beyond
    that by as much as chance may give so many samples (three standard deviations). Looked at under instruments and
    again while timed; the samples are the kernel's where it allows that, else the guest's own. OpenMP's threads at
    their barriers are left out; memory copies of C's library, Python and the candidate's own libraries are not
    counted against it; any other file is, and so is code that was generated at run time: on a CPU that is oneDNN's
    and MKL's. Does not catch library work below those shares; a math library linked into the candidate's own; where
    the kernel gives no samples, a guest that forges its own, blocks the timer, or notices it. Vector functions of
    torch (Sleef) that a C++ extension calls count as torch's.

    Args:
        seen: Of one or more windows of plain calls: `shares`.
        limit: Share that may be borrowed: `borrowed_limit`.
        policy: Whether library compute is allowed.

    Raises:
        Rejected: CHEATED, under `strict`.
    """
    if seen.total < MIN_SAMPLES:
        return NotGated(f"{seen.total} samples of processor time, decided from {MIN_SAMPLES} on")
    if policy is OwnWork.LIBRARY:
        return NotGated(f"{seen}; library compute is allowed")
    said = f"{seen}; at most {limit:.0%} may be borrowed"
    if seen.beyond(limit):
        raise Rejected(Outcome.CHEATED, said)
    if seen.borrowed > limit * seen.total:
        return NotGated(f"{said}, and by chance as much as this may be seen")
    return said


def shares(samples: Mapping[str, int], libraries: Sequence[NativeLibrary]) -> Shares:
    """Sorts processor-time samples, counted by file; `libraries` are the candidate's own."""
    mine = {library.path for library in libraries}
    counted = {name: n for name, n in samples.items() if not _is(_WAITING, name)}
    borrowed = {name: n for name, n in counted.items() if name not in mine and not _is(_NEUTRAL, name)}
    most = sorted(borrowed.items(), key=lambda item: -item[1])[:3]
    return Shares(
        sum(counted.values()),
        sum(borrowed.values()),
        sum(n for name, n in counted.items() if name in mine),
        ", ".join(f"{os.path.basename(name)} {n}" for name, n in most),
    )


def _is(kind: re.Pattern[str], name: str) -> bool:
    """Whether a file is of a kind: by its name, and where no guest can put one of that name."""
    return kind.fullmatch(name) is not None and ("/" not in name or is_kept(name))


def borrowed_limit(moved_bytes: float, call_s: float, copy_bytes_per_s: float) -> float:
    """Returns the share of a call that torch and other libraries may have.

    Args:
        moved_bytes: That torch filled or copied for the candidate in a call.
        call_s: Time of a call.
        copy_bytes_per_s: Measured rate of copying, bytes read plus written.
    """
    moving_s = MOVING_FACTOR * 2 * moved_bytes / copy_bytes_per_s
    return BORROWED_LIMIT + min(MOVING_LIMIT, moving_s / call_s)


@check("outputs are copied")
def copies_outputs(samples: Mapping[str, int] | None, libraries: Sequence[NativeLibrary], due: float) -> str | NotGated:
    """Catches a candidate that spares itself the copy of its outputs, which is taken off its time: it changes the
    guest's runner, and writes into the judge's buffers itself. C's library must have run for half of the processor
    time that the copies of timed windows take, less what chance may take away.

    Does not catch: outputs that are copied in less than 40 ms of all windows together, or by half; as much time
    that the candidate spends in C's library otherwise; anything where the kernel gives no samples, or on a GPU.

    Args:
        samples: The kernel's, of timed windows, by file; None where it gives none.
        libraries: The candidate's own.
        due: Samples that the copies take, by the processor time of such copies that the judge made during the race.

    Raises:
        Rejected: CHEATED.
    """
    if samples is None:
        return NotGated("the kernel gives no samples here (perf_event_open)")
    if due < MIN_COPYING:
        return NotGated(f"copying was {due:.0f} samples of processor time, decided from {MIN_COPYING:.0f} on")
    mine = {library.path for library in libraries}
    seen = sum(n for name, n in samples.items() if name not in mine and _is(_C_LIBRARY, name))
    said = f"{seen} samples of processor time in C's library, {due:.0f} are due for the copies of outputs"
    if seen < COPYING * due - DEVIATIONS * math.sqrt(COPYING * due):
        raise Rejected(Outcome.CHEATED, f"it does not copy its outputs: {said}")
    return said
