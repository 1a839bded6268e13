"""Guests as processes with rlimits, forked from a zygote, each in a session of its own and, wherever the kernel allows
it, in a jail and a control group of its own, or all of them in one container; each candidate in a scratch folder of
its own.

Promised: private socket, output capped, limits on memory and file size, scrubbed environment, death of the
whole process group. In a jail (`sandbox.guest.jail`) also: no network, nothing to be seen or written but what a kernel
needs and its scratch folder, no other processes, nobody's rights. Without one a guest can do what the user can.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from agentgen.errors import ProtocolError, SandboxUnavailable
from agentgen.records.run import Isolation
from agentgen.sandbox import cgroup, folders
from agentgen.sandbox.forked import ProcessGuest
from agentgen.sandbox.guest.jail import NOBODY
from agentgen.sandbox.kin import Kin, kin_of
from agentgen.sandbox.wire import Message, pair
from agentgen.sandbox.zygotes import Zygote, ZygoteProcess

ANSWER_BYTES = 4 << 20
"""Limit of one message from a guest: parsed, JSON can take thirty times its size. 10,000 parameters take 2 MiB."""
ZYGOTE_START_S = 120.0
FORK_S = 20.0
ROOM_BYTES = 64 << 20
"""What must be free where guests work: on a full disk nothing builds, and each candidate would be blamed for it."""
CACHE = "agentgen"
"""Of `agentgen.jit`, in a scratch folder."""

BOTH_SIDES = {
    # Threads that spin after a parallel region slow the other side's window: by OpenMP's own count (300,000) for 10 ms.
    # Threads that never do are woken for each region, in 60 us: eager took a quarter longer for rmsnorm, and four ReLUs
    # of 130,000 elements 235 us instead of 74. 1,000 are 50 us; with 10,000, two threads that begin on one core held
    # each other up for so long that a kernel which remembers answers was accepted in 2 trials of 12.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "1000",
    # glibc maps and unmaps every block over 32 MB, so that each call pays a page fault per 4 KB of its output: eager
    # softmax over 32 MB took 13 ms instead of 3.7, and a check 19 s instead of 8.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Of judge and guest alike: what is raced meets the same conditions."""

# What a guest may see of the environment: where programs and libraries are, nothing else.
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES")


def default_limits(device: str) -> dict[str, int]:
    """Returns the rlimits of a guest. CUDA reserves more address space than there is memory, so AS only binds a CPU."""
    limits = {"CORE": 0, "FSIZE": 1 << 30, "NOFILE": 1024}
    if device == "cpu":
        limits["AS"] = max(16 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return limits


class ProcessSandbox:
    """A zygote and the guests forked from it."""

    def __init__(
        self,
        device: str,
        arch: str | None = None,
        *,
        interpret: bool = False,
        preload: Path | None = None,
        isolation: Isolation = Isolation.JAIL,
        memory_bytes: int | None = None,
        processes: int = cgroup.PROCESSES,
    ) -> None:
        """Starts the zygote; its warm-up goes on in the background until the first `start`.

        Args:
            device: `cpu` or `cuda:N`.
            arch: The GPU's architecture for compilers, e.g. `sm_90a`; None on a CPU, but where it builds for a GPU.
            interpret: Triton kernels run in Triton's interpreter (its decorators read this when they are imported).
            preload: A shared library to load first: the guarding allocator (`sandbox.guard`).
            isolation: What guests are to be kept in: jails, if the kernel allows it, a container, or nothing.
            memory_bytes: What a guest may have, where it has a control group; None: half of what is available.
            processes: As many processes and threads.

        Raises:
            SandboxUnavailable: Docker does not start the container.
        """
        self.device = device
        # Goes with this object, too, where a judge fails before it could close it.
        self._scratch = tempfile.TemporaryDirectory(prefix="agentgen-", ignore_cleanup_errors=True)
        self.folder = Path(self._scratch.name)
        """In which all guests work. Whoever ends first, the zygote removes it with all that is there."""
        self.folder.chmod(0o711)  # nobody passes through it
        variables = environment(self.folder, interpret=interpret, preload=preload)
        if device == "cpu":
            variables |= {"CUDA_VISIBLE_DEVICES": "", **({"AGENTGEN_CUDA_ARCH": arch} if arch else {})}
        command = self._command(arch, isolation, memory_bytes, processes)
        self._zygote = _started(isolation, command, variables, self.folder, preload)
        self._channel = self._zygote.channel
        self._here: dict[int, int] = {}
        """By the ids that the zygote knows its children by, ours."""
        self._jail: str | None = None
        self._cgroup = ""
        self._places: set[Path] = set()
        self._users: Counter[Path] = Counter()
        self._exits: dict[int, int] = {}
        self._guests: dict[int, int] = {}
        """With process 1 of the namespace of each, or itself."""

    def _command(self, arch: str | None, isolation: Isolation, memory_bytes: int | None, processes: int) -> list[str]:
        """Returns what starts the zygote, and makes the folder that a jail is tried in."""
        command = [sys.executable, "-m", "agentgen.sandbox.guest.zygote", "--device", self.device]
        command += ["--folder", str(self.folder)]
        command += ["--arch", arch] if arch else []
        command += ["--processes", str(processes), *(["--memory", str(memory_bytes)] if memory_bytes else [])]
        if isolation is not Isolation.NONE:
            command += ["--jail", str(self._scratch_folder("trial"))]
        return command

    def wait_until_warm(self) -> None:
        """Waits until the zygote has imported everything."""
        if self._jail is not None:
            return
        try:
            answer = self._receive("ready", ZYGOTE_START_S)
            self._group_in(answer)
            self._jail = self._zygote.isolation(f"{answer['jail']}; {self._cgroup}")
        except (ProtocolError, TimeoutError) as error:
            raise SandboxUnavailable(f"the guests' zygote failed: {error}; see `agentgen doctor`") from error

    @property
    def isolation(self) -> str:
        """What guests are kept in, in words."""
        self.wait_until_warm()
        return self._jail or ""

    def start(self, name: str = "", built: Path | None = None) -> ProcessGuest:
        """Forks a guest from the zygote, and waits until it serves: what fails before is no candidate's fault."""
        self.wait_until_warm()
        try:
            guest = self._forked(name, built)
        except OSError as error:
            raise SandboxUnavailable(f"no guest can be started: {error}; see `agentgen doctor`") from error
        try:
            guest.post({"do": "ping"})
            guest.answer(FORK_S)
        except (ProtocolError, TimeoutError) as error:
            guest.kill()
            words = f"{error}, before it had a candidate: {guest.log[-500:]}"
            raise SandboxUnavailable(f"a guest failed: {words}; see `agentgen doctor`") from error
        return guest

    def _forked(self, name: str, built: Path | None) -> ProcessGuest:
        scratch = self._scratch_folder(f"guest-{name}")
        if built:
            self.hand_over(built, scratch)
        ours, theirs = pair(ANSWER_BYTES)
        log_read, log_write = os.pipe2(os.O_CLOEXEC)
        self._users[scratch] += 1
        if os.geteuid() == 0:
            os.fchown(log_write, NOBODY, NOBODY)  # who opens /dev/stderr opens it anew
        try:
            message = {"scratch": str(scratch), "limits": default_limits(self.device)}
            self._channel.send(message, (theirs.fileno(), log_write))
            answer = self._receive("forked", FORK_S)
            if "refused" in answer:
                raise ProtocolError(f"it could not build a jail: {answer['refused']}")
            inside = int(answer["forked"]), int(answer["awaited"])
            self._here.update({one: self._zygote.here(one) for one in inside})
            pid, first = (self._here[one] for one in inside)
            self._guests[pid] = first
            group = self._group_in(answer)
        except (ProtocolError, TimeoutError) as error:
            ours.close()
            os.close(log_read)
            self.leave(scratch)
            raise SandboxUnavailable(f"the guests' zygote failed: {error}; see `agentgen doctor`") from error
        finally:
            theirs.close()
            os.close(log_write)
        return ProcessGuest(self, (pid, first), ours, log_read, scratch, group)

    def hand_over(self, built: Path, scratch: Path) -> None:
        """Moves a cache of compilers to where a guest looks for it, unless it has one."""
        with contextlib.suppress(OSError):
            os.rename(built, scratch / CACHE)

    def leave(self, scratch: Path) -> None:
        """Removes a scratch folder when the last guest that used it has ended."""
        self._users[scratch] -= 1
        if not self._users[scratch]:
            folders.remove(scratch)

    def kin(self, pid: int) -> Kin:
        """Returns what other processes a guest has."""
        return kin_of(pid, self._guests)

    def exit_status(self, pid: int, timeout_s: float = 0.0) -> int | None:
        """Returns how a guest ended, or None if it has not within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while pid not in self._exits:
            left = deadline - time.monotonic()
            try:
                message, _ = self._channel.receive(max(left, 0.001))
            except TimeoutError:
                return None
            except ProtocolError as error:
                raise SandboxUnavailable(f"the guests' zygote failed: {error}; see `agentgen doctor`") from error
            self._note(message)
        return self._exits[pid]

    def close(self) -> None:
        """Ends the zygote, which ends every guest, and removes their folders."""
        self._zygote.end()
        cgroup.sweep(self._places)
        folders.remove(self.folder)
        self._scratch.cleanup()

    def _scratch_folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)  # whom a jail makes of root
        if (free := shutil.disk_usage(folder).free) < ROOM_BYTES:
            raise SandboxUnavailable(f"only {free >> 20} MiB are free in {folder.parent}: make room, or set TMPDIR")
        return folder

    def _group_in(self, message: Message) -> cgroup.Group:
        """Returns the control group that the zygote tells of."""
        group = cgroup.Group(tuple(map(Path, message["groups"])), str(message["cgroup"]))
        self._cgroup = group.words
        self._places |= {folder.parent for folder in group.folders}
        return group

    def _receive(self, key: str, timeout_s: float) -> Message:
        while True:
            message, _ = self._channel.receive(timeout_s)
            if key in message:
                return message
            self._note(message)

    def _note(self, message: Message) -> None:
        if "exited" in message:
            self._exits[self._here.pop(message["exited"], message["exited"])] = message["status"]


def _started(
    isolation: Isolation, command: list[str], variables: dict[str, str], folder: Path, preload: Path | None
) -> Zygote:
    """Returns the zygote, as a process or in a container."""
    if isolation is not Isolation.DOCKER:
        return ZygoteProcess(command, variables)
    # Here, because importing Docker's client takes 0.2 s, which nobody else is to wait for.
    from agentgen.sandbox.container import ZygoteContainer

    return ZygoteContainer(command, variables, folder, preload)


def environment(folder: Path, *, interpret: bool = False, preload: Path | None = None) -> dict[str, str]:
    """Returns the whole environment of a process that runs a candidate in `folder`."""
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    programs = os.path.dirname(sys.executable)  # ninja, which load_inline calls, lies beside an unactivated Python
    return {
        **kept,
        "PATH": os.pathsep.join([programs, kept.get("PATH", os.defpath)]),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "XDG_CACHE_HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # guests are killed, and what lay in a buffer would not be in the log
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # is_available() without touching CUDA: guests are forked from here
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # else its pool of compilers lives on, and counts as helpers
        **BOTH_SIDES,
        "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
        **({"TRITON_INTERPRET": "1"} if interpret else {}),
        **({"LD_PRELOAD": str(preload)} if preload else {}),
    }
