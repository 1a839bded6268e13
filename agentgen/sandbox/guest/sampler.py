"""Where processor time goes: a statistical profiler of the whole process, by the file that the running code lies in.

`setitimer(ITIMER_PROF)` counts down the processor time of all threads; when it has run out, the thread that runs is
interrupted by SIGPROF and a handler in C notes its program counter. The handler only adds to a buffer, so it may
interrupt anything. Linux looks at this timer at its clock tick, so one core gives at most CONFIG_HZ samples a second
(250 or 1,000), whatever is asked for.

Not covered: a candidate that blocks or takes over SIGPROF, stops the timer, or changes this module, whose figures are
a guest's claim; time in the kernel, which counts where the system call was made; child processes; machines without a
C++ compiler, where nothing is sampled.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from agentgen import jit
from agentgen.sandbox.maps import executables, name_at

INTERVAL_US = 1000
FUNCTIONS = frozenset({"sampler_start", "sampler_stop"})
"""What `jit.builds()` lists of this module: no kernels of a candidate."""
_CAPACITY = 1 << 16

_SOURCE = (
    f"constexpr long capacity = {_CAPACITY};"
    r"""
#include <signal.h>
#include <stdint.h>
#include <sys/time.h>
#include <ucontext.h>

static uintptr_t places[capacity];
static long taken;
static struct sigaction before;

static uintptr_t interrupted(void* context) {
    const ucontext_t* state = (const ucontext_t*)context;
#if defined(__x86_64__)
    return (uintptr_t)state->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)state->uc_mcontext.pc;
#else
#error "the program counter of this processor is not known here"
#endif
}

static void note(int, siginfo_t*, void* context) {
    const long mine = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&places[mine % capacity], interrupted(context), __ATOMIC_RELAXED);
}

static int every(long interval_us) {
    struct itimerval timer = {};
    timer.it_interval.tv_usec = timer.it_value.tv_usec = interval_us;
    return setitimer(ITIMER_PROF, &timer, nullptr);
}

extern "C" int sampler_start(int64_t interval_us) {
    taken = 0;
    struct sigaction ours = {};
    ours.sa_sigaction = note;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    sigfillset(&ours.sa_mask);
    return sigaction(SIGPROF, &ours, &before) | every(interval_us);
}

extern "C" int64_t sampler_stop(uint64_t* out) {
    every(0);
    // A signal may still be on its way to another thread. Ignoring it throws it away; under the default action, which
    // is usually what was there before, it would end the process.
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPROF, &ignore, nullptr);
    sigaction(SIGPROF, &before, nullptr);
    const long noted = __atomic_load_n(&taken, __ATOMIC_RELAXED);
    const long kept = noted < capacity ? noted : capacity;
    for (long i = 0; i < kept; i++) out[i] = __atomic_load_n(&places[i], __ATOMIC_RELAXED);
    return kept;
}
"""
)


@functools.cache
def _library() -> jit.Library | None:
    try:
        return jit.cpp(_SOURCE)
    except RuntimeError:  # no compiler, or a processor that it has no lines for
        return None


def warm_up() -> None:
    """Compiles the handler, or finds it compiled, so that the guests forked from here have it. Starts no thread."""
    _library()


@contextmanager
def sampling(record: bool, interval_us: int = INTERVAL_US) -> Generator[dict[str, int]]:
    """Yields a dict that is filled when the block ends: samples by full path of the file that the code lies in.

    Code without a file is `[anonymous]`, the kernel's page `[vdso]`. Of more than 65,536 samples the last are kept.
    The dict stays empty if not `record`, and where there is no C++ compiler. Blocks must not be nested.

    Args:
        record: Whether to sample at all.
        interval_us: Processor time between two samples; the kernel's tick makes it 1,000-4,000 at the least.
    """
    seen: dict[str, int] = {}
    library = _library() if record else None
    if library is None:
        yield seen
        return
    buffer = (ctypes.c_uint64 * _CAPACITY)()
    library.sampler_start(interval_us)
    try:
        yield seen
    finally:
        count = library.sampler_stop(ctypes.addressof(buffer))
        ranges = executables()
        seen.update(Counter(name_at(place, ranges) for place in buffer[:count]))
